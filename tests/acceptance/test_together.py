"""Two models tuned at once while processes die; the tests of this module check one run."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import kintune as kt
from kintune.hardware.cores import physical_cores
from kintune_lab.simulate.recorded import Retraced, read_recording, retrace

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm

JOB, BUILD, DEVICE = "kintune.tuning.job.process", "kintune.workers.build_worker", "kintune.workers.device_worker"
CORES = physical_cores()
DEVICE_NAME = f"cpu:{CORES[-1]}" if len(CORES) > 1 else "cpu"
ONE_LAYER = Path(__file__).parents[2] / "benchmarks/one_layer.onnx"


class Together(NamedTuple):
    """What was seen."""

    code: int
    err: str
    document: dict[str, Any]
    killed: tuple[str, ...]
    traced: Retraced


@pytest.fixture(scope="module")
def together(place: Place) -> Together:
    """Two models under the predictive policy; a process of each kind is killed on the way."""
    command = place.start(
        "tune", place.model, ONE_LAYER, "--trials", 40, "--round-size", 10, "--device", DEVICE_NAME,
        "--schedule", "s.jsonl", "--json", "out.json", "--log", "run.log",
    )  # fmt: skip
    for module in (JOB, BUILD, DEVICE):
        command.wait_for_events(len(place.events("profile")) + 2, "profile")
        command.kill(module)
    code = command.wait()
    document = json.loads((place.folder / "out.json").read_text()) if code == 0 else {}
    recorded = read_recording(str(place.folder / "s.jsonl"))
    recorded.play_again()
    return Together(code, command.err, document, (JOB, BUILD, DEVICE), retrace(recorded))


@pytest.mark.slow
def test_both_finish_whatever_died(together: Together) -> None:
    assert together.code == 0, together.err
    assert [run["trials"] for run in together.document["runs"]] == [40, 40]
    assert together.document["failed"] == []


@pytest.mark.slow
def test_both_results_run(together: Together, place: Place) -> None:
    for run in together.document["runs"]:
        assert run["within_tolerance"] is True
        assert kt.open(run["output"]).evaluate(repeats=2).median_ms > 0


@pytest.mark.slow
def test_nothing_is_measured_twice(together: Together, place: Place) -> None:
    rows = place.query("SELECT run_id, stage, idx FROM events WHERE kind = 'profile' AND status = 'ok'")
    assert max(Counter(rows).values()) == 1
    found = place.query("SELECT run_id, count(*) FROM measurements WHERE origin != 'untuned' GROUP BY run_id")
    assert all(int(str(count)) >= 40 for _, count in found)


@pytest.mark.slow
def test_stages_of_both_interleave(together: Together) -> None:
    spans = sorted((span.start, span.job) for span in together.traced.history.spans)
    changes = sum(one[1] != two[1] for one, two in pairwise(spans))
    assert changes > 4
    assert {job.ending.value for job in together.traced.history.jobs} == {"done"}


@pytest.mark.slow
def test_the_device_was_never_shared(together: Together) -> None:
    spans = [s for s in together.traced.history.spans if s.placement.device is not None]
    spans.sort(key=lambda span: span.start)
    assert len(spans) > 6
    assert all(one.end <= two.start for one, two in pairwise(spans))


@pytest.mark.slow
def test_a_model_that_cannot_be_read_leaves_the_other_alone(empty_place: Place) -> None:
    (empty_place.folder / "broken.onnx").write_bytes(b"not a model")
    command = empty_place.start(
        "tune", empty_place.model, "broken.onnx", "--trials", 4, "--round-size", 2, "--quiet", "--log", "run.log",
        "--threads", empty_place.threads,
    )  # fmt: skip
    assert command.wait() == 2
    assert "1 of 2 models failed: broken: " in command.err
    assert (empty_place.folder / "small.kt").exists()
