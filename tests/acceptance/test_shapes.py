"""One result for two shapes, from the command line: tuned, run, timed, exported; all tests check one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

import kintune as kt
from kintune.errors import InputError
from kintune.runtime.package import Package
from kintune.runtime.plan_format import decode_plan
from kintune.testing.small_onnx import write_small_onnx
from kintune_runtime.inputs import draw_inputs
from kintune_runtime.library import checksum

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = [pytest.mark.tvm, pytest.mark.slow]  # tests/validate/test_validation.py proves several shapes

SIDES = (8, 12)
TRIALS = 24


class Tuned(NamedTuple):
    """What was seen."""

    place: Place
    model: Path
    output: Path
    document: dict[str, Any]
    said: str


@pytest.fixture(scope="module")
def tuned(place: Place) -> Tuned:
    """A small network for two sizes of images."""
    model = write_small_onnx(place.folder / "open.onnx", is_open=True)
    command = place.start(
        "tune", model, "--shape", "x=1x16x{8,12}x{8,12}", "--trials", TRIALS, "--round-size", 8, "--quiet",
        "--threads", place.threads, "--json", "out.json", "--log", "run.log",
    )  # fmt: skip
    assert command.wait() == 0, command.err
    document = json.loads((place.folder / "out.json").read_text())
    return Tuned(place, model, place.folder / "open.kt", document, command.out)


def test_one_budget_is_spent_on_the_subgraphs_of_both(tuned: Tuned) -> None:
    document = tuned.document
    assert document["trials"] == TRIALS
    spent = {subgraph["name"]: subgraph["trials"] for subgraph in document["subgraphs"] if subgraph["trials"]}
    for side in SIDES:
        assert any(name.endswith(f"@{side}x{side}") for name in spent)
    families = {s["name"].rpartition("@")[2]: s["family"] for s in document["subgraphs"] if "conv2d" in s["family"]}
    assert len(set(families.values())) == 1


def test_each_combination_was_compared_and_timed(tuned: Tuned) -> None:
    document = tuned.document
    assert document["within_tolerance"]
    assert [each["shapes"] for each in document["combinations"]] == [{"x": [1, 16, n, n]} for n in SIDES]
    assert all(each["within_tolerance"] and each["latency_ms"]["tuned"] for each in document["combinations"])
    kernels = [each["kernels_ms"] for each in document["combinations"]]
    assert sum(kernels) == pytest.approx(document["kernels_ms"])
    assert "with x=1x16x8x8: " in tuned.said


def test_the_file_runs_both_and_refuses_others_by_name(tuned: Tuned) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(tuned.model)
    executable = kt.open(tuned.output)
    assert [plan[0].shape for plan in executable.plans] == [(1, 16, side, side) for side in SIDES]
    for number in (1, 0):
        x = draw_inputs(executable.described_inputs(number))
        np.testing.assert_allclose(executable.run(x)["y"], session.run(None, x)[0], rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match="the shapes x=1x16x9x9 were not tuned; tuned are: x=1x16x8x8; x=1x16x12x12"):
        executable.run(np.zeros((1, 16, 9, 9), np.float32))


def test_weights_are_stored_about_once(tuned: Tuned) -> None:
    package = Package.open(tuned.output)
    read = []
    for encoded in package.variants[0].plans:
        plan = decode_plan(encoded.plan, checksum).plan
        weights = {(tensor.offset, tensor.nbytes) for tensor in plan.tensors if tensor.place == "weights"}
        read.append(sum(nbytes for _, nbytes in weights))
    assert len(read) == len(SIDES)
    assert package.weights.nbytes < 1.5 * max(read)


def test_the_commands_run_and_time_it(tuned: Tuned) -> None:
    place = tuned.place
    for side in (12, 9):
        np.savez(place.folder / f"{side}.npz", x=np.zeros((1, 16, side, side), np.float32))
    run = place.start("run", "open.kt", "--input", "12.npz")
    assert (run.wait(), run.out.split(":")[0]) == (0, "y")
    refused = place.start("run", "open.kt", "--input", "9.npz")
    assert refused.wait() == 2
    assert "the shapes x=1x16x9x9 were not tuned; tuned are: x=1x16x8x8; x=1x16x12x12" in refused.err
    timed = place.start("evaluate", "open.kt", "--repeats", 2)
    assert timed.wait() == 0
    assert [line.split(":")[0] for line in timed.out.splitlines()[::2]] == [f"open with x=1x16x{n}x{n}" for n in SIDES]


def test_onnxruntime_runs_both(tuned: Tuned) -> None:
    import onnxruntime

    export = tuned.place.start("export", "open.kt", "--to", "onnx", "exported")
    assert export.wait() == 0, export.err
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(str(tuned.place.folder / "exported" / "libkintune_onnx.so"))
    session = onnxruntime.InferenceSession(tuned.place.folder / "exported" / "open.onnx", options)
    assert [isinstance(extent, int) for extent in session.get_inputs()[0].shape] == [True, True, False, False]
    executable = kt.open(tuned.output)
    for number in (0, 1):
        x = draw_inputs(executable.described_inputs(number))
        np.testing.assert_array_equal(session.run(None, x)[0], executable.run(x)["y"])


@pytest.mark.slow
def test_the_same_again_from_the_records_is_compiled_in_seconds(tuned: Tuned) -> None:
    again = tuned.place.start(
        "compile",
        tuned.model,
        "--shape",
        "x=1x16x{8,12}x{8,12}",
        "--output",
        "again.kt",
        "--json",
        "-",
        "--quiet",
        "--threads",
        tuned.place.threads,
    )
    assert again.wait() == 0, again.err
    document = json.loads(again.out)
    assert document["reused_records"] >= TRIALS
    assert len(document["combinations"]) == 2
