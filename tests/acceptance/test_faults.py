"""One model is tuned while everything is killed once, and then again while commands compete and are interrupted.

The tests of this module look at one story from several sides: starting TVM takes seconds, and tuning takes more.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnxruntime
import psutil
import pytest

from kintune.hardware.cpu import inspect_machine
from kintune.runtime.package import read_manifest

if TYPE_CHECKING:
    from tests.acceptance.conftest import Command, Event, Place

pytestmark = [pytest.mark.tvm, pytest.mark.slow]  # in the fast tests, test_service.py kills each process

JOB, BUILD, DEVICE = "kintune.tuning.job.process", "kintune.workers.build_worker", "kintune.workers.device_worker"
NEVER_SPENT = 4000  # trials, where an interrupt is to come before the end


class First(NamedTuple):
    """What was seen of the first run."""

    before: list[Event]
    run_ids: list[object]
    orphans: list[psutil.Process]
    code: int
    command: Command
    document: dict[str, Any]


class Second(NamedTuple):
    """What was seen of the second."""

    first_code: int
    first_err: str
    orphans: list[psutil.Process]
    states: list[object]
    waiting: str
    holder: int
    code: int
    document: dict[str, Any]


@pytest.fixture(scope="module")
def first(place: Place) -> First:
    """The front is killed in mid-round, and in the run that goes on, one process of each kind."""
    command = place.tune("--json", "first.json")
    command.wait_for_events(3, "profile")
    children = command.children()
    command.kill()
    _, orphans = psutil.wait_procs(children, timeout=20)
    before, run_ids = place.events(), [row[0] for row in place.query("SELECT run_id FROM runs")]

    command = place.tune("--json", "first.json")
    for module in (JOB, BUILD, DEVICE):
        command.wait_for_events(len(place.events("profile")) + 2, "profile")
        command.kill(module)
    code = command.wait()
    document = json.loads((place.folder / "first.json").read_text()) if code == 0 else {}
    return First(before, run_ids, orphans, code, command, document)


def test_after_all_it_finishes(first: First, place: Place) -> None:
    assert first.code == 0, first.command.err
    assert first.document["reason"] == "trials"
    assert first.document["trials"] == place.trials


def test_no_child_outlives_the_front(first: First) -> None:
    assert [child for child in first.orphans if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_the_same_run_went_on(first: First, place: Place) -> None:
    assert [first.document["run_id"]] == first.run_ids == [row[0] for row in place.query("SELECT run_id FROM runs")]
    assert first.document["resumed"] is True


def test_nothing_acknowledged_is_lost(first: First, place: Place) -> None:
    events = [event for event in place.events() if event in first.before]
    assert events == first.before
    assert len(first.before) > 5


def test_nothing_is_measured_twice(first: First, place: Place) -> None:
    run_id = first.document["run_id"]
    payloads = place.query(f"SELECT payload FROM events WHERE kind = 'profile' AND run_id = '{run_id}'")
    assert max(Counter(payloads).values()) == 1
    ((measured, distinct),) = place.query("SELECT count(*), count(DISTINCT candidate) FROM measurements")
    assert measured == distinct


def test_the_document_is_complete(first: First, place: Place) -> None:
    document = first.document
    assert document["model"]["name"] == "small"
    assert document["latency_ms"].keys() >= {"untuned", "tuned", "onnxruntime", "spread"}
    assert document["latency_ms"]["tuned"] > 0
    assert document["max_abs_error"] < 1e-3
    assert document["within_tolerance"] is True
    assert sum(subgraph["trials"] for subgraph in document["subgraphs"]) == place.trials
    assert document["curve"]
    assert all(subgraph["best_us"] > 0 for subgraph in document["subgraphs"])


def test_a_fresh_process_computes_what_onnxruntime_computes(first: First, place: Place) -> None:
    assert first.code == 0
    x = np.random.default_rng(1).standard_normal((1, 16, 16, 16), np.float32)
    np.savez(place.folder / "x.npz", x=x)
    ran = place.start("run", "small.kt", "--input", "x.npz", "--output", "y.npz")
    assert ran.wait() == 0, ran.err
    (expected,) = onnxruntime.InferenceSession(place.model).run(None, {"x": x})
    np.testing.assert_allclose(np.load(place.folder / "y.npz")["y"], expected, rtol=1e-3, atol=1e-4)


def test_the_result_names_the_cpu_that_it_was_tuned_on(first: First, place: Place) -> None:
    """The runtime prefers it there to others in a merged file."""
    assert first.code == 0
    assert read_manifest(place.folder / "small.kt").cpu == inspect_machine().cpu


@pytest.mark.parametrize(("name", "dtype", "named"), [("x", "int64", "int64"), ("z", "float32", "z")])
def test_inputs_that_do_not_fit_are_refused_by_name(
    first: First, place: Place, name: str, dtype: str, named: str
) -> None:
    assert first.code == 0
    np.savez(place.folder / "odd.npz", **{name: np.zeros((1, 16, 16, 16), dtype)})
    ran = place.start("run", "small.kt", "--input", "odd.npz", "--output", "odd-y.npz")
    assert ran.wait() == 2
    (line,) = ran.err.splitlines()
    assert line.startswith("kintune: error: ")
    assert named in line
    assert not (place.folder / "odd-y.npz").exists()


def test_nothing_lies_beside_the_result(first: First, place: Place) -> None:
    assert first.code == 0
    assert sorted(path.name for path in place.folder.glob("small.*")) == ["small.kt", "small.onnx"]


@pytest.fixture(scope="module")
def second(first: First, place: Place) -> Second:
    """The command once more: interrupted twice, then given again, and interrupted once while another one waits."""
    profiled, packaged = len(place.events("profile")), len(place.events("package"))
    command = place.tune("--json", "second.json", "--trials", NEVER_SPENT)
    command.wait_for_events(profiled + 2, "profile")
    command.interrupt()
    command.wait_for_events(packaged + 1, "package")
    children = command.children()
    command.interrupt()
    first_code, first_err = command.wait(), command.err
    _, orphans = psutil.wait_procs(children, timeout=20)
    states = [row[0] for row in place.query("SELECT state FROM runs ORDER BY created")]

    seen = len(place.events())
    command = place.tune("--json", "second.json", "--trials", NEVER_SPENT)
    command.wait_until(lambda: bool(command.children(DEVICE)))
    waiting = place.tune("--output", "other.kt", name="waiting")
    waiting.wait_until(lambda: "waiting for" in waiting.err)
    said = waiting.err
    waiting.kill()
    command.wait_until(lambda: len(place.events()) >= seen + 4)
    command.interrupt()
    code = command.wait()
    assert code == 0, command.err
    document = json.loads((place.folder / "second.json").read_text())
    return Second(first_code, first_err, orphans, states, said, command.process.pid, code, document)


def test_a_second_interrupt_leaves_at_once(second: Second) -> None:
    assert second.first_code == 128 + signal.SIGINT
    assert second.first_err.splitlines()[-1] == "kintune: interrupted"
    assert [child for child in second.orphans if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []
    assert second.states == ["finished", "interrupted"]


def test_an_interrupted_run_goes_on(first: First, second: Second, place: Place) -> None:
    assert second.document["resumed"] is True
    assert second.document["run_id"] != first.document["run_id"]
    assert len(place.query("SELECT run_id FROM runs")) == 2


def test_one_interrupt_finishes_with_what_there_is(second: Second, place: Place) -> None:
    assert second.document["reason"] == "interrupted"
    assert second.document["latency_ms"]["tuned"] > 0
    assert (place.folder / "small.kt").stat().st_size > 0


def test_the_second_run_measures_nothing_twice_and_says_so(first: First, second: Second, place: Place) -> None:
    assert second.document["reused_records"] >= first.document["trials"]
    candidates = "SELECT count(*), count(DISTINCT candidate) FROM measurements"
    ((measured, distinct),) = place.query(candidates)
    assert measured == distinct


def test_another_command_waits_and_says_for_whom(second: Second) -> None:
    assert f"held by {second.holder}" in second.waiting
