"""The wheel: complete, and a command that works where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import kintune
from tests.support.toy_model import write_model

ROOT = Path(__file__).parents[1]


def run(*command: object, **settings: object) -> subprocess.CompletedProcess[str]:
    """Run a command; its output is in the failure when it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of what belongs to the project."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def runtime_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the runtime."""
    folder = tmp_path_factory.mktemp("runtime")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT / "runtime")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone, unpacked by pip; what it needs is taken from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    return folder


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = {path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert packed == {str(path.relative_to(ROOT / "src")) for path in tracked}


def test_the_metadata_name_ranges_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        commands = archive.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert metadata["Version"] == kintune.__version__
    assert metadata["Requires-Python"] == "<3.14,>=3.10"
    required = metadata.get_all("Requires-Dist") or []
    assert any(line.startswith("apache-tvm-ffi<0.1.15,>=0.1.14") for line in required)
    assert not any("@" in line for line in required)
    assert "kintune = kintune.cli:main" in commands


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    where = run(sys.executable, "-c", "import kintune; print(kintune.__file__)", env=environment, cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(installed)
    command = installed / "bin" / "kintune"
    assert run(command, "--version", env=environment, cwd=tmp_path).stdout == f"kintune {kintune.__version__}\n"
    assert "resnet18" in run(command, "models", env=environment, cwd=tmp_path).stdout
    assert list(tmp_path.iterdir()) == []


def test_the_runtime_needs_numpy_alone(runtime_wheel: Path, tmp_path: Path) -> None:
    assert runtime_wheel.name.startswith("kintune_runtime-0.1.0-py3-none-linux_")
    assert runtime_wheel.stat().st_size < 300_000
    folder = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, runtime_wheel)
    assert (folder / "kintune_runtime" / "include" / "kintune.h").is_file()
    model = write_model(tmp_path / "toy.kt")
    code = f"""
        import sys
        import numpy
        before = set(sys.modules)
        import kintune_runtime
        model = kintune_runtime.open({str(model)!r})
        print(model.run(numpy.ones(1000, numpy.float32))["out"][:3].tolist())
        print(sorted({{n.partition(".")[0] for n in set(sys.modules) - before}} - sys.stdlib_module_names))
        print(kintune_runtime.__file__)
    """
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    done = run(sys.executable, "-c", textwrap.dedent(code), env=environment, cwd=tmp_path)
    outputs, modules, where = done.stdout.splitlines()
    assert outputs == "[1.0, 3.0, 5.0]"
    assert modules == "['kintune_runtime', 'numpy']"
    assert Path(where).is_relative_to(folder)


@pytest.mark.slow
def test_the_wheel_tunes_in_an_empty_environment(wheel: Path, runtime_wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    constraints = ROOT / "constraints.txt"
    run(home / "bin/python", "-m", "pip", "install", "--quiet", "--constraint", constraints, runtime_wheel, wheel)
    command = home / "bin/kintune"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["KINTUNE_RECORDS"] = str(tmp_path / "records.sqlite")
    output = tmp_path / "small.kt"
    model = "zoo:mobilenet_v1_0.5?image=64"
    said = run(command, "tune", model, "--trials", "32", "--output", output, env=environment, cwd=tmp_path)
    assert str(output) in said.stdout
    assert "median of" in run(command, "evaluate", output, "--repeats", "3", env=environment, cwd=tmp_path).stdout
