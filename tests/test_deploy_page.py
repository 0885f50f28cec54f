"""`docs/deploy.md` is followed to the letter: its commands run where there is only what the page says is needed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
import pytest

import kintune_runtime
from tests.support.doc_blocks import Block, blocks
from tests.support.toy_model import write_model

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "deploy.md"
SECTIONS = {
    "C and C++": ["sh", "c", "sh", "cpp", "sh"],
    "A mixed fleet": ["sh"],
    "Python": ["sh", "python", "sh"],
    "A wheel of the model": ["sh"],
    "onnxruntime, in Python": ["sh", "python", "sh"],
    "onnxruntime, in C++": ["sh", "cpp", "sh"],
    "Signed models": ["sh"],
    "Which machines": ["sh"],
}
"""The sections with blocks, each of which a test below follows, and the languages of those."""

Shell = Callable[[Path, str], str]
"""Runs a line in a folder, and returns what it prints."""

COMPILERS = ("cc", "c++", "as", "ld")
PIP = """#!/bin/sh
PIP_NO_INDEX=1 exec {python} -m pip --python {target} --quiet --disable-pip-version-check "$@"
"""


def printed(command: Sequence[object], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def follow(heading: str, folder: Path, shell: Shell) -> list[str]:
    """Do what a section says; returns the lines that its commands print.

    `kintune` runs in this environment, all else in the shell.
    """
    section = [block for block in blocks(PAGE) if block.heading == heading]
    assert [block.language for block in section] == SECTIONS[heading]
    lines: list[str] = []
    for block in section:
        if block.language != "sh":
            assert block.file, f"a program without a name: {block.text}"
            (folder / block.file).write_text(block.text)
            continue
        for line in block.text.splitlines():
            if line.startswith("cd "):
                folder = folder / line[3:]
            elif line.startswith("kintune "):
                printed([sys.executable, "-m", *shell_words(line, folder)], folder, dict(os.environ))
            else:
                lines += shell(folder, line).splitlines()
    return lines


def shell_words(line: str, folder: Path) -> list[str]:
    """The words of a line without quotes; a pattern stands for the files in the folder that fit it."""
    assert not set(line) & set("'\"$\\"), line
    found: list[str] = []
    for word in line.split():
        found += sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else [word]
    return found


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's reader is: a folder with `model.kt` alone."""
    made = tmp_path / "reader"
    made.mkdir()
    write_model(made / "model.kt")
    return made


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with what is on every system: a shell, and few commands."""
    made = tmp_path / "tools"
    made.mkdir()
    for name in ("sh", "uname"):
        executable(made / name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    return made


@pytest.fixture
def compilers(tools: Path) -> Shell:
    """A shell that finds compilers alone."""
    for name in COMPILERS:
        executable(tools / name, f'#!/bin/sh\nexec {shutil.which(name)} "$@"\n')
    return lambda folder, line: printed(["/bin/sh", "-c", line], folder, {"PATH": str(tools)})


def python_with(tmp_path: Path, tools: Path, packages: Sequence[str]) -> Shell:
    """A shell that finds the Python of a new environment, in which some packages of this one are, and its pip."""
    home = tmp_path / "environment"
    venv.create(home, symlinks=True)
    (there,) = home.glob("lib/python*/site-packages")
    for package in packages:
        installed = distribution(package)
        for top in {Path(each).parts[0] for each in installed.files or () if not str(each).startswith("..")}:
            (there / top).symlink_to(installed.locate_file(top))
    python = home / "bin" / "python"
    executable(tools / "python", f'#!/bin/sh\nexec {python} "$@"\n')
    executable(tools / "pip", PIP.format(python=sys.executable, target=python))
    return lambda folder, line: printed(["/bin/sh", "-c", line], folder, {"PATH": str(tools)})


def python_installed(tmp_path: Path, tools: Path, packages: Sequence[str]) -> Shell:
    """The same, into which pip installs the packages from an index."""
    shell = python_with(tmp_path, tools, [])
    python = tmp_path / "environment" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "install"]
    done = subprocess.run([*map(str, pip), *packages], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"pip cannot install {' '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")
    return shell


PYTHONS = pytest.mark.parametrize(
    "python", [python_with, pytest.param(python_installed, marks=pytest.mark.slow)], ids=["linked", "installed"]
)


def test_each_section_is_followed_by_a_test() -> None:
    found: dict[str, list[str]] = {}
    for block in blocks(PAGE):
        found.setdefault(block.heading, []).append(block.language)
    assert found == SECTIONS
    assert not re.search(r"^    ", re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.M | re.S), re.M)


def check_c(lines: list[str]) -> None:
    assert lines[0] == "out [1000] 1 3 5 7"
    assert lines[1].startswith("fastest of 100 runs: ")
    assert lines[2:] == ["out: 4000 bytes", "out: 4000 bytes"]


def test_c_with_compilers_alone(folder: Path, compilers: Shell) -> None:
    check_c(follow("C and C++", folder, compilers))


@pytest.mark.slow
def test_c_in_a_root_of_its_own(folder: Path, tmp_path: Path) -> None:
    """In a root with the C library, the compilers, and /proc."""
    root = tmp_path / "root"
    (root / "usr" / "bin").mkdir(parents=True)
    for name in ("sh", *COMPILERS):
        shutil.copy(os.path.realpath(shutil.which(name) or ""), root / "usr" / "bin" / name)
    mounts = [
        path for path in ("/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/include", "/proc") if Path(path).is_dir()
    ]
    for path in [*mounts, "/tmp"]:
        (root / path[1:]).mkdir(parents=True)
    for name in ("lib", "lib64", "bin"):
        if (Path("/") / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    lines = [f"mount --rbind {path} {root}{path}" for path in mounts]
    script = "\n".join(["set -e", *lines, f"mount --bind {folder} {root}/tmp", 'exec chroot "$@"'])
    unshare = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace of mounts may be made here")

    def shell(here: Path, line: str) -> str:
        inside = f"cd /tmp/{here.relative_to(folder)}; {line}"
        command = [*unshare, "/bin/sh", "-c", script, "sh", root, "/usr/bin/sh", "-c", inside]
        return printed(command, folder, {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin"})

    assert shell(folder, "type python3 || echo none").splitlines()[-1] == "none"
    check_c(follow("C and C++", folder, shell))


@PYTHONS
def test_python_with_numpy_alone(
    folder: Path, tmp_path: Path, tools: Path, python: Callable[[Path, Path, Sequence[str]], Shell]
) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder / "dist",
        ROOT / "runtime",
    ]
    printed(command, folder, dict(os.environ))
    assert follow("Python", folder, python(tmp_path, tools, ["numpy"])) == ["out (1000,)"]


@PYTHONS
def test_a_wheel_of_the_model_with_numpy_alone(
    folder: Path, tmp_path: Path, tools: Path, python: Callable[[Path, Path, Sequence[str]], Shell]
) -> None:
    (line,) = follow("A wheel of the model", folder, python(tmp_path, tools, ["numpy"]))
    assert line.startswith("(Tensor(name='x', shape=(1000,), dtype='float32'")


@PYTHONS
def test_onnxruntime_in_python(
    folder: Path, tmp_path: Path, tools: Path, python: Callable[[Path, Path, Sequence[str]], Shell]
) -> None:
    packages = ["onnxruntime", "numpy", "flatbuffers", "packaging", "protobuf"]
    assert follow("onnxruntime, in Python", folder, python(tmp_path, tools, packages)) == ["out (1000,)"]


@pytest.mark.slow
@pytest.mark.needs("onnxruntime-release")
def test_onnxruntime_in_cpp(folder: Path, tools: Path, compilers: Shell) -> None:
    release = os.environ["KINTUNE_TEST_ONNXRUNTIME"]

    def shell(folder: Path, line: str) -> str:
        return printed(["/bin/sh", "-c", line], folder, {"PATH": str(tools), "ONNXRUNTIME": release})

    assert follow("onnxruntime, in C++", folder, shell) == ["out: 1000 elements"]


def test_a_mixed_fleet(folder: Path, compilers: Shell) -> None:
    (folder / "model.kt").unlink()
    write_model(folder / "intel.kt", isa=["avx1024"])
    write_model(folder / "amd.kt")
    write_model(folder / "graviton.kt", machine="riscv64")
    assert follow("A mixed fleet", folder, compilers) == []
    with kintune_runtime.open(folder / "model.kt") as model:
        assert (model.variant.number, model.variant.total) == (1, 3)


@pytest.mark.needs("openssl")
def test_signed_models(folder: Path, tools: Path, compilers: Shell) -> None:
    executable(tools / "openssl", f'#!/bin/sh\nexec {shutil.which("openssl")} "$@"\n')
    np.savez(folder / "x.npz", x=np.ones(1000, np.float32))
    assert follow("Signed models", folder, compilers) == []
    with kintune_runtime.open(folder / "model.kt", trusted=folder / "public.pem") as model:
        assert model.inputs[0].name == "x"


@pytest.mark.needs("ziglang")
def test_another_machine(folder: Path, compilers: Shell) -> None:
    write_model(folder / "board.kt", machine="aarch64")
    environment = {**os.environ, "PYTHON": sys.executable}
    printed([ROOT / "tools" / "runtime_wheels", folder / "dist"], folder, environment)
    assert follow("Which machines", folder, compilers) == []
    assert "AArch64" in printed(["readelf", "-h", "deploy/libkintune.so"], folder, dict(os.environ))


def test_blocks_are_found_with_their_sections(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\n## One\n\n```sh\nls\n```\n\n### More\n\n```c\n/* a.c: says */\n```\n## Two\n```\nx\n```\n"
    )
    assert blocks(page) == [
        Block("One", "sh", "ls\n", ""),
        Block("One", "c", "/* a.c: says */\n", "a.c"),
        Block("Two", "", "x\n", ""),
    ]
