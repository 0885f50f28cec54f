"""The auditor finds every decision that breaks an invariant, and only these."""

from __future__ import annotations

import pytest

from kintune.core.stage import Demand, Stage
from kintune.scheduler.events import (
    Cancel,
    Decision,
    Event,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobMoved,
    PriorityChanged,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
)
from kintune.scheduler.invariants import Auditor, InvariantError
from kintune.scheduler.resources import Device, Host, Placement

HOST, OTHER = Host("h", 4, 100), Host("o", 4, 100)
CPU = Device("c", "cpu", host="h", on_host_cores=True)
GPU = Device("g", "gpu", capacity=2)
NEAR = Device("n", "near", host="o")
CORE = Demand(cores=1, memory_mb=10)
ALL, CORES, MEMORY = Demand(4, 100), Demand(4, 90), Demand(1, 100)
ON_GPU, ALONE = Demand(device="gpu"), Demand(device="gpu", exclusive=True)
ON_CPU = Demand(device="cpu", exclusive=True)
BOUND = Demand(cores=1, device="near")

Step = tuple[Event, list[Decision]]


def ready(
    id: str = "a", demand: Demand = CORE, *, job: str = "j", kind: str = "", own: bool = False, after: str = ""
) -> StageReady:
    return StageReady(1, Stage(id, job, kind or id, demand, job if own else None, after=tuple(filter(None, [after]))))


def start(id: str = "a", attempt: int = 0, *, job: str = "j", **placement: object) -> Start:
    return Start(id, job, attempt, Placement(**{"host": "h", "cores": 1, "memory_mb": 10, **placement}))  # type: ignore[arg-type]


def on_gpu(id: str = "a", attempt: int = 0, *, job: str = "j", exclusive: bool = False, device: str = "g") -> Start:
    return Start(id, job, attempt, Placement(None, 0, 0, device, exclusive))


def observe(steps: list[Step], *, overbooks: bool = False) -> Auditor:
    auditor = Auditor(overbooks=overbooks)
    joined = (HOST, OTHER, CPU, GPU, NEAR)
    begin = [*(ResourceJoined(0, each) for each in joined), JobAdded(0, "j"), JobAdded(0, "k")]
    for event, decisions in [*((each, []) for each in begin), *steps]:
        auditor.observe(event, decisions)
    return auditor


RUNS: Step = (ready(), [start()])
FAILED = StageFailed(2, "j", "a", 0, "boom")
RETRY = RetryAt("a", "j", 1, 3.0, "boom")
TWO: list[Step] = [(ready("a", ON_GPU), [on_gpu("a")]), (ready("b", ON_GPU), [on_gpu("b")])]

BREAKS: dict[str, tuple[list[Step], str]] = {
    "what nobody asked for": ([(ready(), [start("b")])], "is not live"),
    "what is done": ([RUNS, (StageDone(2, "j", "a", 0), [start(attempt=1)])], "is not live"),
    "what was dropped": ([(ready(), []), (StageDropped(2, "j", "a"), [start()])], "is not live"),
    "what runs": ([RUNS, (ready("b"), [start(attempt=1)])], "runs already"),
    "an attempt again": ([RUNS, (FAILED, [start()])], "attempt 0 after 0"),
    "before its retry": ([RUNS, (FAILED, [RETRY]), (ready("b"), [start(attempt=1)])], "before its retry at 3.0"),
    "by a retry of another attempt": (
        [RUNS, (FAILED, [RETRY]), (RetryDue(3, "j", "a", 2), [start(attempt=1)])],
        "before its retry at 3.0",
    ),
    "before what it waits for": ([(ready(after="x"), [start()])], "started before x"),
    "before what it waits for is done": ([RUNS, (ready("b", after="a"), [start("b")])], "started before a"),
    "before an earlier one of its kind": (
        [(ready(kind="x"), []), (ready("b", kind="x"), [start("b")])],
        "overtook .*of its kind",
    ),
    "while its process is busy": (
        [(ready(own=True), [start()]), (ready("b", own=True), [start("b")])],
        "while its process is busy",
    ),
    "too few cores": ([(ready("a", Demand(cores=2)), [start()])], "too few cores"),
    "too little memory": ([(ready("a", Demand(1, 11)), [start()])], "too little memory"),
    "a device not alone": ([(ready("a", ALONE), [on_gpu()])], "at Placement"),
    "a device alone though it may share": ([(ready("a", ON_GPU), [on_gpu(exclusive=True)])], "at Placement"),
    "no device": ([(ready("a", ON_GPU), [start()])], "was given Placement"),
    "a device unasked": ([(ready(), [start(device="g")])], "was given Placement"),
    "a device of another type": ([(ready("a", ON_GPU), [on_gpu(device="c")])], "wants a gpu"),
    "a host that has not joined": ([(ready(), [start(host="x")])], "which has not joined"),
    "a host that is lost": ([(ResourceLost(1, "h", ""), []), (ready(), [start()])], "started on h, which is lost"),
    "a device that is lost": (
        [(ResourceLost(1, "g", ""), []), (ready("a", ON_GPU), [on_gpu()])],
        "started on g, which is lost",
    ),
    "a device whose host is lost": (
        [(ResourceLost(1, "o", ""), []), (ready("a", BOUND), [start(device="n")])],
        "whose host is lost",
    ),
    "a device on another host": ([(ready("a", BOUND), [start(device="n")])], "n is not on h"),
    "the CPU without all of its cores": (
        [(ready("a", ON_CPU), [start(device="c", exclusive=True)])],
        "not all of its cores",
    ),
    "away from its home": (
        [(JobMoved(1, "j", "o"), []), (ready(own=True), [start()])],
        "started on h, and its process lives on o",
    ),
    "cores twice": ([(ready("a", CORES), [start(cores=4, memory_mb=90)]), (ready("b"), [start("b")])], "5 of 4 cores"),
    "cores twice, behind what waits": (
        [
            (ready("w"), []),
            (ready("a", CORES), [start(cores=4, memory_mb=90)]),
            (ready("b"), [start("b")]),
        ],
        "5 of 4 cores",
    ),
    "memory twice": (
        [(ready("a", MEMORY), [start(cores=1, memory_mb=100)]), (ready("b"), [start("b")])],
        "110 of 100 MB",
    ),
    "one alone and another": (
        [(ready("a", ALONE), [on_gpu(exclusive=True)]), (ready("b", ON_GPU), [on_gpu("b")])],
        "for one stage alone and 1 more",
    ),
    "more than its capacity": ([*TWO, (ready("c", ON_GPU), [on_gpu("c")])], "3 stages are on g, which takes 2"),
    "after its job was cancelled": (
        [(JobCancelled(1, "j", "unwanted"), []), (ready(), [start()])],
        "is not live",
    ),
    "after its job was given up": (
        [RUNS, (ready("b"), []), (FAILED, [GiveUp("a", "j", "boom", ())]), (ready("c", job="k"), [start("b")])],
        "is not live",
    ),
    "what ran when its job ended": ([RUNS, (JobEnded(2, "j"), []), (FAILED, [start(attempt=1)])], "is not live"),
    "a retry of what runs": ([RUNS, (ready("b"), [RETRY])], "is retried but has not failed"),
    "a retry of what nobody asked for": ([(ready("b"), [RETRY])], "is retried but has not failed"),
    "a retry in the past": ([RUNS, (FAILED, [RetryAt("a", "j", 1, 1.5, "boom")])], "retried in the past"),
    "a retry at once": ([RUNS, (FAILED, [RetryAt("a", "j", 1, 2.0, "boom")])], "retried in the past"),
    "a retry that skips an attempt": ([RUNS, (FAILED, [RetryAt("a", "j", 2, 3.0, "boom")])], "attempt 2 after 0"),
    "a cancel of what waits": ([(ready(), [Cancel("a", "j", 0, "")])], "does not run"),
    "a cancel of what nobody asked for": ([(ready(), [Cancel("b", "j", 0, "")])], "does not run"),
    "a cancel of another attempt": ([RUNS, (ready("b"), [Cancel("a", "j", 1, "")])], "does not run"),
    "a cancel twice": (
        [RUNS, (ready("b"), [Cancel("a", "j", 0, "")]), (ready("c"), [Cancel("a", "j", 0, "")])],
        "is cancelled twice",
    ),
    "an end of what does not run": ([(ready(), []), (StageDone(2, "j", "a", 0), [])], "ended but was not running"),
    "an end of another attempt": ([RUNS, (StageFailed(2, "j", "a", 1, ""), [])], "ended but was not running"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_invariant_is_found_when_it_breaks(name: str) -> None:
    steps, message = BREAKS[name]
    observe(steps[:-1])
    with pytest.raises(InvariantError, match=message):
        observe(steps)


KEEPS: dict[str, list[Step]] = {
    "a start after a retry": [RUNS, (FAILED, [RETRY]), (RetryDue(3, "j", "a", 1), [start(attempt=1)])],
    "a start after what it waits for": [RUNS, (ready("b", after="a"), []), (StageDone(2, "j", "a", 0), [start("b")])],
    "a start after what was dropped": [
        (ready("b"), []),
        (ready(after="b"), []),
        (StageDropped(2, "j", "b"), [start()]),
    ],
    "the kinds of other jobs": [(ready(kind="x"), []), (ready("b", job="k", kind="x"), [start("b", job="k")])],
    "an earlier one of its kind that runs": [
        (ready(kind="x"), [start()]),
        (ready("b", kind="x"), [start("b")]),
    ],
    "a process of another job that is busy": [
        (ready(own=True), [start()]),
        (ready("b", job="k", own=True), [start("b", job="k")]),
    ],
    "a process that is busy, for others": [(ready(own=True), [start()]), (ready("b"), [start("b")])],
    "all cores, all memory": [(ready("a", ALL), [start(cores=4, memory_mb=100)])],
    "two on a device for two": TWO,
    "the CPU with all its cores": [(ready("a", ON_CPU), [start(cores=4, device="c", exclusive=True)])],
    "a device where it is": [(ready("a", BOUND), [start(host="o", device="n")])],
    "a host that is back": [(ResourceLost(1, "h", ""), []), (ResourceBack(1, "h"), []), RUNS],
    "a host that joined again": [(ResourceLost(1, "h", ""), []), (ResourceJoined(1, HOST), []), RUNS],
    "at home": [(JobMoved(1, "j", "o"), []), (ready(own=True), [start(host="o")])],
    "away from home what needs no process": [(JobMoved(1, "j", "o"), []), RUNS],
    "a job that is added again": [
        RUNS,
        (StageDone(2, "j", "a", 0), []),
        (JobEnded(3, "j"), []),
        (JobAdded(4, "j"), []),
        (ready(after="a"), []),
        (ready("a"), [start("a")]),
    ],
    "what is done when another job is added again": [
        RUNS,
        (StageDone(2, "j", "a", 0), []),
        (JobEnded(3, "k"), []),
        (JobAdded(4, "k"), []),
        (ready("b", after="a"), [start("b")]),
    ],
    "one that ended is cancelled anew in its next attempt": [
        RUNS,
        (ready("b"), [Cancel("a", "j", 0, "")]),
        (FAILED, [start(attempt=1)]),
        (ready("c"), [Cancel("a", "j", 1, "")]),
    ],
}


@pytest.mark.parametrize("name", KEEPS)
def test_what_keeps_the_invariants_is_let_pass(name: str) -> None:
    observe(KEEPS[name])


def test_a_policy_that_overbooks_may_book_more_than_there_is_and_nothing_else() -> None:
    for name in ("cores twice", "memory twice", "more than its capacity", "the CPU without all of its cores"):
        observe(BREAKS[name][0], overbooks=True)
    with pytest.raises(InvariantError, match="wants a gpu"):
        observe(BREAKS["a device of another type"][0], overbooks=True)


def test_the_auditor_knows_what_runs_and_what_is_live() -> None:
    auditor = observe([RUNS, (ready("b"), [])])
    assert [(stage.id, attempt) for stage, attempt in auditor.running] == [("a", 0)]
    assert auditor.live == [("j", "a"), ("j", "b")]
    auditor.observe(JobCancelled(2, "j", "unwanted"), [Cancel("a", "j", 0, "unwanted")])
    assert auditor.live == [("j", "a")]
    auditor.observe(FAILED, [])
    assert auditor.live == auditor.running == []


@pytest.mark.parametrize("priority", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("passed", [1, 2])
@pytest.mark.parametrize("changed", [False, True])
def test_a_stage_is_overtaken_no_more_often_than_twice_what_its_priority_allows(
    priority: float, passed: int, changed: bool
) -> None:
    """Eight times and four times for each job of its priority, and once for each stage that is overtaken with it."""
    auditor = Auditor(starvation_free=True)
    auditor.observe(ResourceJoined(0, GPU), [])
    auditor.observe(JobAdded(0, "late", 7.0 if changed else priority), [])
    if changed:
        auditor.observe(PriorityChanged(0, "late", priority), [])
    auditor.observe(JobAdded(0, "over"), [])
    auditor.observe(JobEnded(0, "over"), [])
    auditor.observe(JobAdded(0, "quick", 3.0), [])
    auditor.observe(ready("before", ON_GPU, job="late"), [on_gpu("before", job="late")])
    auditor.observe(StageDone(1, "late", "before", 0), [])
    for number in range(passed):
        auditor.observe(ready(f"w{number}", ON_GPU, job="late", after="before"), [])
    auditor.observe(ready("after", ON_GPU, job="late", after="w0"), [])  # waits for another stage
    auditor.observe(ready("behind", ON_GPU, job="late", kind="w0"), [])  # waits for its kind, not for a device
    auditor.observe(ready("bound", ON_GPU, job="late", own=True), [])
    auditor.observe(ready("other", ALONE, job="late"), [])

    def overtake(id: str) -> None:
        auditor.observe(ready(id, ON_GPU, job="quick", kind="x"), [on_gpu(id, job="quick")])

    for number in range(int(2 * (8 + 4 * (priority + 3.0) / priority + passed))):
        overtake(f"s{number}")
        auditor.observe(StageDone(1, "quick", f"s{number}", 0), [])
    with pytest.raises(InvariantError, match="waits while"):
        overtake("too many")


def test_a_start_begins_the_count_anew_and_so_does_none_by_a_process() -> None:
    auditor = Auditor(starvation_free=True)
    for event in (ResourceJoined(0, GPU), JobAdded(0, "j"), JobAdded(0, "k")):
        auditor.observe(event, [])
    most = 2 * (8 + 4 * 2 + 1)
    auditor.observe(ready("late", ON_GPU), [])
    for attempt in range(3):
        for number in range(most):
            id = f"{attempt}.{number}"
            auditor.observe(ready(id, ON_GPU, job="k", kind="x"), [on_gpu(id, job="k")])
            auditor.observe(StageDone(1, "k", id, 0), [])
            auditor.observe(ready(f"own{id}", ON_GPU, job="k", own=True), [on_gpu(f"own{id}", job="k")])
            auditor.observe(StageDone(1, "k", f"own{id}", 0), [])
        auditor.observe(ready(f"then{attempt}", ON_GPU, job="k"), [on_gpu("late", attempt)])
        auditor.observe(StageFailed(1, "j", "late", attempt, "boom"), [])
        auditor.observe(StageDropped(1, "k", f"then{attempt}"), [])
