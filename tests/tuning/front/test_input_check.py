"""What is wrong with an input is said before any resource is asked for, also while another process holds the cores."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kintune.core.capabilities import FOR_INT8
from kintune.core.config import Options
from kintune.core.model import ModelRef
from kintune.core.report import ProgressReport
from kintune.errors import InputError
from kintune.models.constants import constant_of
from kintune.tuning.front import driver, input_check
from kintune.tuning.front.input_check import check_inputs
from kintune.tuning.front.request import TuneRequest
from tests.support.command import Kintune
from tests.support.graphs import Graph

HOLDER = """
import os, sys
from kintune.hardware.locks import cores_lock
with cores_lock(os.sched_getaffinity(0)):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def _held_cores() -> Iterator[None]:
    """Another process holds the cores of this machine."""
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.communicate()


@pytest.fixture
def network(tmp_path: Path) -> Path:
    graph = Graph()
    return graph.save(tmp_path / "net.onnx", ["rows", 4], [graph("Relu", "x")])  # type: ignore[list-item]


_ONE = Options(trials=1)


def request(path: Path, *inputs: Path, options: Options = _ONE, **about: object) -> TuneRequest:
    ref = ModelRef("onnx", str(path), path.stem, own=True, **about)  # type: ignore[arg-type]
    return TuneRequest(model=ref, options=options, output="out.kt", inputs=tuple(map(str, inputs)))


@pytest.mark.usefixtures("_held_cores")
@pytest.mark.parametrize("command", ["tune", "compile"])
def test_a_missing_shape_is_said_while_the_cores_are_held(
    kintune: Kintune, network: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(network.parent)
    said = kintune(command, network, "--other-shapes", "onnxruntime")
    assert (said.code, said.out) == (2, "")
    assert "add --shape x=1x4" in said.err
    assert "waiting" not in said.err


@pytest.mark.parametrize(
    ("shapes", "arrays", "said"),
    [
        ({}, {"x": np.zeros((1000, 4), np.float32)}, "{1..4}x4 is needed"),
        ({"y": (1, 4)}, {}, "--shape names 'y', but the model's inputs are x"),
        ({"x": (1, 5)}, {}, "contradicts the model"),
        ({"x": (1, 4)}, {"z": np.zeros((1, 4), np.float32)}, "no input is called 'z'"),
        ({"x": (1, 4)}, {"x": np.zeros((2, 4), np.float32)}, "shape"),
        ({"x": (1, 4)}, {"x": np.zeros((1, 4), np.int64)}, "int64"),
    ],
)
def test_shapes_and_files_of_inputs_are_compared_with_the_model(
    network: Path, shapes: dict[str, tuple[int, ...]], arrays: dict[str, np.ndarray], said: str
) -> None:
    files = []
    if arrays:
        np.savez(network.parent / "in.npz", **arrays)  # type: ignore[arg-type]
        files = [network.parent / "in.npz"]
    with pytest.raises(InputError, match=re.escape(said)):
        check_inputs(request(network, *files, shapes=shapes))


def test_what_is_right_passes_with_each_combination_of_shapes(network: Path) -> None:
    np.savez(network.parent / "in.npz", x=np.zeros((2, 4), np.float32))
    check_inputs(request(network, network.parent / "in.npz", shapes={"x": (1, 4)}, more_shapes=({"x": (2, 4)},)))


def test_an_input_with_a_constant_value_is_no_input(network: Path) -> None:
    check_inputs(request(network, constants={"x": constant_of("x", np.zeros((3, 4), np.float32))}))
    with pytest.raises(InputError, match="a constant is given for 'y'"):
        check_inputs(request(network, constants={"y": constant_of("y", 1)}))


def test_a_damaged_file_and_a_network_of_the_zoo_are_checked(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model at all")
    with pytest.raises(InputError, match="not"):
        check_inputs(request(tmp_path / "net.onnx"))
    zoo = ModelRef("zoo", "resnet18", "resnet18", shapes={"input": (1, 3, 5, 5)})
    with pytest.raises(InputError, match="contradicts the model"):
        check_inputs(TuneRequest(model=zoo, output="out.kt"))


@pytest.mark.parametrize(("precision", "needed"), [("bf16", "amxbf16"), ("int8", "avxvnni")])
def test_a_precision_that_the_cpu_lacks_is_refused(
    network: Path, monkeypatch: pytest.MonkeyPatch, precision: str, needed: str
) -> None:
    asked = request(network, options=Options(trials=1, precision=precision), shapes={"x": (1, 4)})  # type: ignore[arg-type]
    monkeypatch.setattr(input_check, "host_extensions", lambda: ("avx2", needed))
    check_inputs(asked)
    monkeypatch.setattr(input_check, "host_extensions", lambda: ("avx2",))
    with pytest.raises(InputError, match=f"precision {precision}: .* has no instructions for"):
        check_inputs(asked)


@pytest.mark.usefixtures("_held_cores")
def test_while_it_waits_programs_of_pytorch_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one takes seconds, which do not matter to a run that waits."""
    (tmp_path / "net.pt2").write_bytes(b"PK\x03\x04 and no more")
    asked = TuneRequest(model=ModelRef("exported", str(tmp_path / "net.pt2"), "net"), output=str(tmp_path / "out.kt"))
    told: list[ProgressReport] = []
    with pytest.raises(InputError):
        driver.tune(asked, told.append)
    assert [report.phase.partition(", held by ")[0] for report in told] == ["waiting for the cores"]


def test_of_several_models_a_wrong_one_is_named_and_leaves_the_others_alone(network: Path) -> None:
    right, wrong = request(network, shapes={"x": (1, 4)}), request(network, shapes={"x": (1, 5)})
    told: list[tuple[int, str]] = []
    driver._check_inputs([right, wrong], lambda number, report: told.append((number, report.phase)))
    assert [(number, phase.partition(":")[0]) for number, phase in told] == [(1, "will fail")]
    with pytest.raises(InputError, match="contradicts the model"):
        driver._check_inputs([wrong, wrong], lambda number, report: None)


def test_the_extensions_for_bytes_are_those_of_the_programs() -> None:
    from kintune.compiler.kernels.instructions import BYTES

    assert {need for each in BYTES if not each.tiles for need in each.needs} == FOR_INT8
