"""An exported wheel is installed and run where there is numpy alone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kintune.errors import InputError
from kintune.runtime.exports.wheel import export_wheel
from kintune.runtime.merging import merge
from kintune.runtime.package import EncodedPlan, PackageVariant, write_package
from tests.support.toy_hybrid import write_toy_hybrid
from tests.support.toy_model import ADDING, encoded, kernels, manifest, packed, write_model


def test_it_is_installed_and_runs_by_itself(tmp_path: Path) -> None:
    wheel = export_wheel(write_model(tmp_path / "toy.kt"), tmp_path / "export", "my_model")
    assert wheel.name.startswith("my_model-0+000000000000-py3-none-linux_")
    folder = tmp_path / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(folder),
        str(wheel),
    ]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code = """
        import sys
        import numpy
        before = set(sys.modules)
        import my_model
        with my_model.load() as model:
            print(model.run(numpy.ones(1000, numpy.float32))["out"][:3].tolist())
        try:
            my_model.load().run(numpy.ones(7, numpy.float32))
        except my_model.InputError as error:
            print(error)
        print(sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(
        command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[1.0, 3.0, 5.0]",
        "input 'x' has shape (7,), (1000,) is needed",
        "['my_model', 'numpy']",
    ]


def test_a_merged_file_is_in_the_wheel_whole(tmp_path: Path) -> None:
    given = [write_model(tmp_path / "new.kt", isa=["avx1024"]), write_model(tmp_path / "old.kt")]
    wheel = export_wheel(merge(given, tmp_path / "fat.kt").path, tmp_path / "export", "my_model")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    code = "import my_model; print(my_model.load().variant)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("Variant(number=1, total=2, "), done.stderr


def test_the_package_has_the_models_name(tmp_path: Path) -> None:
    assert export_wheel(write_model(tmp_path / "toy.kt"), tmp_path / "export").name.startswith("toy-0+")


@pytest.mark.parametrize(
    ("model", "package"),
    [
        ("ResNet-50 v1.5", "resnet_50_v1_5"),
        ("3d", "model_3d"),
        ("été", "t"),
        ("模型", "model"),
        ("class", "model_class"),
    ],
)
def test_any_name_of_a_model_gives_a_package(tmp_path: Path, model: str, package: str) -> None:
    path = tmp_path / "toy.kt"
    content = packed([np.arange(1000, dtype=np.float32)])
    named = msgspec.structs.replace(manifest(ADDING), model_name=model)
    write_package(path, [PackageVariant(named, (EncodedPlan(encoded(ADDING, content), kernels()),))], content)
    assert export_wheel(path, tmp_path / "export").name.startswith(f"{package}-0+")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("my-model", "'my-model' is no name of a Python package"),
        ("class", "'class' is no name of a Python package"),
        ("numpy", "'numpy' is the name of a package that the wheel needs"),
    ],
)
def test_a_name_that_cannot_be_had_is_refused(tmp_path: Path, name: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        export_wheel(write_model(tmp_path / "toy.kt"), tmp_path / "export", name)


def test_a_wheel_asks_for_what_the_runtime_asks_for(tmp_path: Path) -> None:
    project = (Path(__file__).parents[3] / "runtime" / "pyproject.toml").read_text()
    with zipfile.ZipFile(export_wheel(write_model(tmp_path / "toy.kt"), tmp_path / "export")) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        lines = archive.read(name).decode().splitlines()
    asked = dict(line.split(": ", 1) for line in lines if line.startswith("Requires-"))
    assert f'requires-python = "{asked["Requires-Python"]}"' in project
    assert f'dependencies = ["{asked["Requires-Dist"]}"]' in project


def test_a_wheel_that_runs_partly_in_onnxruntime_asks_for_it(tmp_path: Path) -> None:
    wheel = export_wheel(write_toy_hybrid(tmp_path), tmp_path / "export", "my_model")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        assert "Requires-Dist: onnxruntime>=1.31.1,<1.32\n" in archive.read(metadata).decode()
    code = """
        import numpy, my_model
        with my_model.load() as model:
            print(type(model).__name__, model.run(numpy.ones(1000, numpy.float32))["out"][:3].tolist())
        import sys
        sys.modules["onnxruntime"] = None
        try:
            my_model.load()
        except my_model.KintuneError as error:
            print(error)
    """
    environment = {"PYTHONPATH": str(tmp_path / "installed"), "TMPDIR": str(tmp_path / "export")}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "HybridExecutable [1.0, 6.0, 13.0]",
        "this result runs partly in onnxruntime: pip install onnxruntime",
    ]
    assert not list((tmp_path / "export").glob("kintune-*"))
