"""The wheels: complete, and what is in them works where they are installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import textwrap
import venv
import zipfile
from collections.abc import Mapping
from email.parser import Parser
from pathlib import Path

import pytest

import kintune
from kintune.hardware.cpu import host_machine
from kintune.runtime.exports.c_library import export_c
from tests.support.emulator import FEATURES, FOR_AARCH64, run_emulated
from tests.support.toy_model import write_model

ROOT = Path(__file__).parents[1]
LIBRARIES = ("libkintune.so", "libkintune_onnx.so")
LIBRARY_BYTES = 200_000
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
"""Machine of a platform -> what readelf calls it."""

RUNS_A_MODEL = """
    import sys
    import numpy
    before = set(sys.modules)
    import kintune_runtime
    model = kintune_runtime.open(sys.argv[1])
    print(model.run(numpy.ones(1000, numpy.float32))["out"][:3].tolist())
    print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
    print(kintune_runtime.__file__)
"""


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
def platform_wheels(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The wheels of the runtime that `make wheel` builds, by their machines."""
    folder = tmp_path_factory.mktemp("platforms")
    library = ROOT / "runtime" / "src" / "kintune_runtime" / "libkintune.so"
    before = library.stat().st_mtime_ns
    run(ROOT / "tools" / "runtime_wheels", folder, env={**os.environ, "PYTHON": sys.executable})
    assert library.stat().st_mtime_ns == before, "the library of the editable install was replaced"
    found = {path.stem.partition("manylinux_2_17_")[2]: path for path in folder.iterdir()}
    assert sorted(found) == sorted(MACHINES)
    return found


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


def test_each_wheel_has_the_licence(wheel: Path, runtime_wheel: Path) -> None:
    for each in (wheel, runtime_wheel):
        with zipfile.ZipFile(each) as archive:
            (licence,) = (name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
            assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_name_ranges_and_the_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = next(name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name)
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        commands = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Version"] == kintune.__version__
    assert metadata["Requires-Python"] == "<3.15,>=3.10"
    required = metadata.get_all("Requires-Dist") or []
    assert any(line.startswith("apache-tvm-ffi<0.1.15,>=0.1.14") for line in required)
    assert not any("@" in line for line in required)
    assert "kintune = kintune.cli:main" in commands


def test_extras_have_the_names_that_users_expect(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert {"service", "client", "ray", "torch", "compare", "linker"} <= extras
    page = (ROOT / "docs" / "releases.md").read_text().partition("| extra | for |")[2].partition("\n\n")[0]
    assert (
        set(re.findall(r"`([a-z]+)`(?=[,| ])", "\n".join(row.split("|")[1] for row in page.splitlines()[2:]))) == extras
    )


def named_versions(root: Path = ROOT) -> dict[str, str]:
    """The version at each place that names it."""
    places = {
        "src/kintune/core/version.py": r'^__version__ = "(.+)"',
        "runtime/src/kintune_runtime/version.py": r'^__version__ = "(.+)"',
        "runtime/src/kintune_runtime/example/kintune.pc": r"^Version: (.+)",
        "pyproject.toml": r'^  "kintune-runtime==(.+)",',
    }
    return {place: re.findall(pattern, (root / place).read_text(), re.M)[0] for place, pattern in places.items()}


def test_both_packages_have_one_version() -> None:
    assert set(named_versions().values()) == {kintune.__version__}


def test_one_command_sets_the_version_at_every_place_that_names_it(tmp_path: Path) -> None:
    for place in named_versions():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    environment = {**os.environ, "KINTUNE_ROOT": str(tmp_path)}
    run(ROOT / "tools" / "set_version", "7.8.9rc1", env=environment)
    changed = {place: (tmp_path / place).read_text() for place in named_versions()}
    assert all(
        "7.8.9rc1" in text and kintune.__version__ not in text.split("7.8.9rc1")[0][-20:] for text in changed.values()
    )
    bad = subprocess.run(
        [ROOT / "tools" / "set_version", "v7"], env=environment, capture_output=True, text=True, check=False
    )
    assert (bad.returncode, bad.stderr) == (2, "usage: tools/set_version X.Y.Z\n")


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[set[str]]:
    """The files in the sources of both packages, without the folder that they are in."""
    folder = tmp_path_factory.mktemp("sources")
    found = []
    for project in (ROOT, ROOT / "runtime"):
        made = folder / project.name
        run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", made, project)
        (packed,) = made.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            found.append({name.partition("/")[2] for name in archive.getnames()})
    return found


def test_the_sources_have_what_they_are_built_of_and_nothing_that_was_built(sources: list[set[str]]) -> None:
    whole, runtime = sources
    assert {
        "src/kintune/cli/root.py",
        "src/kintune_lab/__init__.py",
        "constraints.txt",
        "README.md",
        "LICENSE",
    } <= whole
    assert {
        "build_library.py",
        "native/model.c",
        "src/kintune_runtime/include/kintune.h",
        "README.md",
        "LICENSE",
    } <= runtime
    for names in sources:
        assert not [name for name in names if name.endswith((".so", ".pyc", ".whl")) or name.startswith("dist/")]


def test_the_installed_command_works(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    where = run(sys.executable, "-c", "import kintune; print(kintune.__file__)", env=environment, cwd=tmp_path)
    assert Path(where.stdout.strip()).is_relative_to(installed)
    command = installed / "bin" / "kintune"
    assert run(command, "--version", env=environment, cwd=tmp_path).stdout == f"kintune {kintune.__version__}\n"
    assert "resnet18" in run(command, "models", env=environment, cwd=tmp_path).stdout
    assert list(tmp_path.iterdir()) == []


def check_that_it_runs(wheel: Path, tmp_path: Path) -> None:
    """What a wheel of the runtime has runs a model, and imports numpy alone."""
    folder = tmp_path / "installed"
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel)
    assert (folder / "kintune_runtime" / "include" / "kintune.h").is_file()
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", textwrap.dedent(RUNS_A_MODEL), write_model(tmp_path / "toy.kt")]
    outputs, modules, where = run(*command, env=environment, cwd=tmp_path).stdout.splitlines()
    assert outputs == "[1.0, 3.0, 5.0]"
    assert modules == "['kintune_runtime', 'numpy']"
    assert Path(where).is_relative_to(folder)


def test_the_runtime_needs_numpy_alone(runtime_wheel: Path, tmp_path: Path) -> None:
    assert runtime_wheel.name.startswith(f"kintune_runtime-{kintune.__version__}-py3-none-linux_")
    assert runtime_wheel.stat().st_size < 300_000
    check_that_it_runs(runtime_wheel, tmp_path)


def unpacked(wheel: Path, folder: Path) -> Path:
    """The package in a wheel of the runtime."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder / "kintune_runtime"


@pytest.mark.needs("ziglang")
@pytest.mark.parametrize("machine", MACHINES)
def test_a_platforms_wheel_is_what_its_tag_says(
    platform_wheels: Mapping[str, Path], tmp_path: Path, machine: str
) -> None:
    wheel = platform_wheels[machine]
    assert wheel.name == f"kintune_runtime-{kintune.__version__}-py3-none-manylinux_2_17_{machine}.whl"
    assert wheel.stat().st_size < 300_000
    package = unpacked(wheel, tmp_path)
    info = (tmp_path / f"kintune_runtime-{kintune.__version__}.dist-info" / "WHEEL").read_text()
    assert f"Tag: py3-none-manylinux_2_17_{machine}\n" in info
    assert "Root-Is-Purelib: false" in info
    assert sorted(path.name for path in package.rglob("*.so")) == sorted(LIBRARIES)
    for name in LIBRARIES:
        assert (package / name).stat().st_size < LIBRARY_BYTES
        content = (package / name).read_bytes()
        assert not [path for path in (sys.prefix, str(ROOT), "ziglang") if path.encode() in content]
        said = run("readelf", "--wide", "--file-header", "--version-info", "--dynamic", package / name).stdout
        assert re.search(r"Machine: +(.+)", said)[1] == MACHINES[machine]  # type: ignore[index]
        symbols = {tuple(map(int, each.split("."))) for each in re.findall(r"Name: GLIBC_([\d.]+)", said)}
        assert symbols
        assert max(symbols) <= (2, 17)
        needed = {each.partition(".so")[0] for each in re.findall(r"\(NEEDED\) .*\[(.+)\]", said)}
        assert needed <= {"libc", "libdl", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}


@pytest.mark.needs("ziglang")
@pytest.mark.skipif(host_machine() not in MACHINES, reason="no wheel for this machine is built")
def test_this_machines_wheel_needs_numpy_alone(platform_wheels: Mapping[str, Path], tmp_path: Path) -> None:
    check_that_it_runs(platform_wheels[host_machine()], tmp_path)


@pytest.mark.slow
@pytest.mark.needs("ziglang")
@pytest.mark.skipif(host_machine() not in MACHINES, reason="no wheel for this machine is built")
def test_this_machines_wheel_runs_with_the_oldest_numpy(platform_wheels: Mapping[str, Path], tmp_path: Path) -> None:
    home = tmp_path / "environment"
    old = shutil.which("python3.10") or sys.executable
    if subprocess.run([old, "-V"], capture_output=True, check=False).returncode != 0:  # a link of a version manager
        old = sys.executable
    run(old, "-m", "venv", home)
    python = home / "bin/python"
    minor = int(run(python, "-c", "import sys; print(sys.version_info.minor)").stdout)
    numpy = "1.26.0" if minor < 13 else "2.1.0"
    run(python, "-m", "pip", "install", "--quiet", f"numpy=={numpy}", platform_wheels[host_machine()])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", textwrap.dedent(RUNS_A_MODEL), write_model(tmp_path / "toy.kt")]
    outputs, modules, _ = run(*command, env=environment, cwd=tmp_path).stdout.splitlines()
    assert outputs == "[1.0, 3.0, 5.0]"
    assert modules in ("['kintune_runtime']", "['kintune_runtime', 'numpy']")  # numpy may import more of itself


@pytest.mark.needs("ziglang")
def test_a_platform_that_is_none_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT / "runtime"]
    environment = {**os.environ, "KINTUNE_WHEEL_PLATFORM": "macosx_11_0_arm64"}
    done = subprocess.run([str(each) for each in command], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (
        "KINTUNE_WHEEL_PLATFORM=macosx_11_0_arm64: name one such as manylinux_2_17_x86_64" in done.stdout + done.stderr
    )
    assert list(tmp_path.iterdir()) == []


def emulated(folder: Path, features: str = FEATURES, cpu: str = "cortex-a76") -> str:
    """What the example of an export for aarch64 prints."""
    run(*FOR_AARCH64, "example.c", "-L.", "-lkintune", "-Wl,-rpath,$ORIGIN", "-o", "example", cwd=folder)
    done = run_emulated(["./example", "model.kt", "2"], folder, features, cpu)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.needs("ziglang", "qemu-aarch64")
def test_the_wheel_for_aarch64_runs_in_an_emulator(platform_wheels: Mapping[str, Path], tmp_path: Path) -> None:
    kernels = tmp_path / "kernels.so"
    run(*FOR_AARCH64, "-shared", "-fPIC", "-o", kernels, ROOT / "tests" / "support" / "toy_kernels.c")
    model = write_model(tmp_path / "toy.kt", machine="aarch64", isa=["neon"], library=kernels.read_bytes())
    folder = export_c(model, tmp_path / "export", platform_wheels["aarch64"])
    assert emulated(folder).startswith("out [1000] 1 3 5 7\n")


@pytest.mark.tvm
@pytest.mark.needs("ziglang", "qemu-aarch64", "aarch64-linker")
def test_a_network_for_aarch64_computes_there_what_it_computes_here(
    platform_wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    import numpy as np

    from tests.support.tiny_network import make_tiny_network

    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    target = '{"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76"}'
    make_tiny_network(tmp_path / "there", target=target).executable.save(tmp_path / "tiny.kt")
    folder = export_c(tmp_path / "tiny.kt", tmp_path / "export", platform_wheels["aarch64"])
    here = make_tiny_network(tmp_path / "here").executable
    y = here.run({each.name: np.ones(each.shape, each.dtype) for each in here.inputs})["y"]
    name, *printed = emulated(folder).splitlines()[0].replace("]", "[").split("[")
    assert name == "y "
    np.testing.assert_allclose(np.array(printed[1].split(), np.float32), y.reshape(-1)[:4], rtol=1e-4)


@pytest.mark.tvm
@pytest.mark.needs("ziglang", "qemu-aarch64", "aarch64-linker")
@pytest.mark.parametrize(("more", "features", "variant"), [("", "", "sdot"), (" -mattr=+i8mm", " i8mm", "usdot")])
def test_products_of_bytes_for_aarch64_compute_there_what_they_compute_here(
    more: str, features: str, variant: str, platform_wheels: Mapping[str, Path], tmp_path: Path
) -> None:
    import numpy as np

    from kintune.compiler.graph.executable import build_executable, describe_build
    from kintune.core.model import Tensor
    from kintune.runtime.target import resolve_target
    from kintune.search.processor import Processor
    from kintune.search.sketch_program import program_of
    from tests.support.quantised import Layer, Written, chosen_by_rule, lowered, run_onnxruntime, write_layer

    layer = write_layer(Layer(channels=13, filters=37, after="relu"), tmp_path)
    ones = Written(layer.path, {name: np.ones_like(array) for name, array in layer.feeds.items()}, layer.step)
    cpu = f"cortex-a76 -mtriple=aarch64-linux-gnu{more}"
    network, target = lowered(layer, cpu)
    programs = chosen_by_rule(network, target, "bytes", Processor(lanes=4, registers=32))
    assert [program_of(sketch) for sketch, _ in programs.values()] == [f"bytes.3:{variant}"]
    expected = run_onnxruntime(ones)
    manifest = describe_build(
        model_name="bytes", model_digest="0" * 32, target=resolve_target(f"llvm -mcpu={cpu}", 1), threads=1, chosen={},
        inputs=[Tensor("x", ones.feeds["x"].shape, "float32")], outputs=[Tensor("y", expected.shape, "float32")],
    )  # fmt: skip
    build_executable(network, programs, target, manifest).save(tmp_path / "bytes.kt")
    folder = export_c(tmp_path / "bytes.kt", tmp_path / "export", platform_wheels["aarch64"])
    _, *printed = emulated(folder, FEATURES + features, "max").splitlines()[0].replace("]", "[").split("[")
    first = expected.reshape(-1)[:4]
    assert first.any()
    np.testing.assert_allclose(np.array(printed[1].split(), np.float32), first, rtol=1e-3)


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
