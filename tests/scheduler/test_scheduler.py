import contextlib

import pytest

from kintune.core.stage import Demand, Stage
from kintune.errors import SchedulerError
from kintune.scheduler import job_table
from kintune.scheduler.events import (
    RECORDING_VERSION,
    Cancel,
    Decision,
    Event,
    GiveUp,
    JobAdded,
    JobCancelled,
    JobEnded,
    JobExpects,
    JobMoved,
    PriorityChanged,
    RecordedStep,
    ResourceBack,
    ResourceJoined,
    ResourceLost,
    RetryAt,
    RetryDue,
    ScheduleHeader,
    StageDone,
    StageDropped,
    StageFailed,
    StageReady,
    Start,
    decode_line,
    encode_line,
)
from kintune.scheduler.invariants import Auditor
from kintune.scheduler.job_state import StageState
from kintune.scheduler.policies import Fair, Sequential
from kintune.scheduler.policy import JobFacts, Policy, PolicyView, RankedPolicy, Suggestion
from kintune.scheduler.ready_stages import ReadyQueue, ReadyQueues
from kintune.scheduler.resources import Device, Host, Placement
from kintune.scheduler.scheduler import RetryLimits, Scheduler

HOST = Host("here", cores=4, memory_mb=1000)
CPU = Device("cpu", "cpu-type", host="here", on_host_cores=True)
CORES = Demand(cores=2, memory_mb=100)
ALONE = Demand(device="cpu-type", exclusive=True)


class Eager(RankedPolicy):
    """Starts any stage that fits, so that only the scheduler's own rules keep the order."""

    name = "eager"


class Audited:
    """A scheduler with an auditor, and a clock that the test advances."""

    def __init__(self, policy: Policy, limits: RetryLimits | None = None) -> None:
        self.scheduler = Scheduler(policy, limits)
        self.auditor = Auditor()

    def __call__(self, event: Event) -> list[Decision]:
        decisions = self.scheduler.handle(event)
        self.auditor.observe(event, decisions)
        return decisions


def stage(id: str, kind: str = "build", job: str = "j", demand: Demand = CORES, after: tuple[str, ...] = ()) -> Stage:
    return Stage(id, job, kind, demand, after=after)


@pytest.fixture
def eager() -> Audited:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, CPU), JobAdded(0, "j")):
        assert audited(event) == []
    return audited


@pytest.fixture
def sequential() -> Audited:
    audited = Audited(Sequential())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, CPU), JobAdded(0, "j"), JobAdded(0, "k", priority=1)):
        assert audited(event) == []
    return audited


def test_a_stage_starts_where_it_fits(eager: Audited) -> None:
    assert eager(StageReady(1, stage("a"))) == [Start("a", "j", 0, Placement("here", 2, 100))]
    assert eager(StageReady(1, stage("b"))) == [Start("b", "j", 0, Placement("here", 2, 100))]
    assert eager(StageReady(1, stage("c"))) == []
    assert eager(StageDone(2, "j", "a", 0)) == [Start("c", "j", 0, Placement("here", 2, 100))]


def test_a_device_on_the_host_s_cores_excludes_what_runs_there(eager: Audited) -> None:
    eager(StageReady(1, stage("a")))
    assert eager(StageReady(1, stage("p", "profile", demand=ALONE))) == []
    assert eager(StageDone(2, "j", "a", 0)) == [Start("p", "j", 0, Placement("here", 4, 0, "cpu", exclusive=True))]
    assert eager(StageReady(3, stage("b"))) == []
    assert eager(StageDone(4, "j", "p", 0)) == [Start("b", "j", 0, Placement("here", 2, 100))]


@pytest.mark.parametrize(("capacity", "at_once"), [(1, 1), (2, 2), (None, 3)])
def test_a_device_takes_as_many_at_once_as_it_has_room_for(eager: Audited, capacity: int | None, at_once: int) -> None:
    eager(ResourceJoined(0, Device("gpu", "gpu", capacity=capacity)))
    shared = Demand(device="gpu")
    started = [eager(StageReady(1, stage(f"s{n}", f"kind{n}", demand=shared))) for n in range(3)]
    assert sum(map(len, started)) == at_once
    if at_once < 3:
        assert [each.stage for each in eager(StageDone(2, "j", "s0", 0))] == [f"s{at_once}"]


def test_a_stage_waits_for_those_before_it(eager: Audited) -> None:
    assert eager(StageReady(1, stage("p", "profile", after=("a", "b")))) == []
    eager(StageReady(1, stage("a")))
    eager(StageReady(1, stage("b", "other")))
    assert eager(StageDone(2, "j", "b", 0)) == []
    (start,) = eager(StageDone(3, "j", "a", 0))
    assert start == Start("p", "j", 0, Placement("here", 2, 100))


def test_a_stage_after_one_that_is_done_already_starts_at_once(eager: Audited) -> None:
    eager(StageReady(1, stage("a")))
    eager(StageDone(2, "j", "a", 0))
    assert len(eager(StageReady(3, stage("p", "profile", after=("a",))))) == 1


def test_stages_of_a_kind_are_never_reordered(eager: Audited) -> None:
    assert eager(StageReady(1, stage("late", after=("never",)))) == []
    assert eager(StageReady(1, stage("early"))) == []
    assert len(eager(StageReady(1, stage("other", "select")))) == 1
    assert [each.stage for each in eager(StageDropped(2, "j", "late"))] == ["early"]


def test_a_failed_stage_is_tried_three_times_more_and_then_given_up(eager: Audited) -> None:
    eager(StageReady(0, stage("a")))
    now = 0.0
    for attempt, wait in enumerate((1.0, 2.0, 4.0)):
        assert eager(StageFailed(now, "j", "a", attempt, "boom")) == [
            RetryAt("a", "j", attempt + 1, now + wait, "boom")
        ]
        now += wait
        (start,) = eager(RetryDue(now, "j", "a", attempt + 1))
        assert isinstance(start, Start)
        assert start.attempt == attempt + 1
    eager(StageReady(now, stage("b", "other")))
    give_up, cancel = eager(StageFailed(now, "j", "a", 3, "boom"))
    assert isinstance(give_up, GiveUp)
    assert (give_up.stage, give_up.job, give_up.cause) == ("a", "j", "boom")
    assert sum("StageFailed" in line and "cause=boom" in line for line in give_up.story) == 4
    assert isinstance(cancel, Cancel)
    assert (cancel.stage, cancel.reason) == ("b", "boom")
    assert eager(StageReady(now, stage("c"))) == []
    assert eager(StageFailed(now, "j", "b", 0, "cancelled")) == []
    assert eager(JobEnded(now, "j")) == []
    assert eager(JobAdded(now, "j")) == []
    assert len(eager(StageReady(now, stage("a")))) == 1


def test_later_stages_of_the_kind_wait_for_the_retry(eager: Audited) -> None:
    eager(StageReady(0, stage("a")))
    eager(StageFailed(0, "j", "a", 0, "boom"))
    assert eager(StageReady(0, stage("b"))) == []
    assert [each.stage for each in eager(RetryDue(1, "j", "a", 1))] == ["a", "b"]


def test_what_no_retry_can_help_is_given_up_at_once(eager: Audited) -> None:
    eager(StageReady(0, stage("a")))
    (give_up,) = eager(StageFailed(0, "j", "a", 0, "wrong input", retryable=False))
    assert isinstance(give_up, GiveUp)


@pytest.mark.parametrize(
    "demand", [Demand(cores=5), Demand(memory_mb=1001), Demand(device="gpu"), Demand(cores=5, device="cpu-type")]
)
def test_what_could_never_run_is_given_up_instead_of_waiting_for_ever(eager: Audited, demand: Demand) -> None:
    (give_up,) = eager(StageReady(0, stage("a", demand=demand)))
    assert isinstance(give_up, GiveUp)
    assert "no host or device could ever run it" in give_up.cause


def test_what_could_never_run_waits_where_resources_may_join() -> None:
    audited = Audited(Eager(), RetryLimits(resources_may_join=True))
    audited(JobAdded(0, "j"))
    assert audited(StageReady(0, stage("a"))) == []
    assert len(audited(ResourceJoined(1, HOST))) == 1


def test_a_lost_device_s_stage_is_cancelled_and_runs_once_more_without_a_mark(eager: Audited) -> None:
    eager(StageReady(0, stage("p", "profile", demand=ALONE)))
    assert eager(ResourceLost(1, "cpu", "no answer")) == [Cancel("p", "j", 0, "cpu is lost: no answer")]
    assert eager(StageFailed(1, "j", "p", 0, "cancelled")) == []
    (start,) = eager(ResourceBack(2, "cpu"))
    assert isinstance(start, Start)
    assert start.attempt == 1
    (retry,) = eager(StageFailed(2, "j", "p", 1, "boom"))
    assert isinstance(retry, RetryAt)
    assert retry.when == 3


def test_a_lost_host_may_be_back_with_other_cores() -> None:
    audited = Audited(Eager(), RetryLimits(resources_may_join=True))
    for event in (ResourceJoined(0, Host("h", 2, 100)), JobAdded(0, "j"), ResourceLost(1, "h", "cut off")):
        audited(event)
    assert audited(StageReady(1, stage("a", demand=Demand(cores=3, memory_mb=200)))) == []
    (start,) = audited(ResourceJoined(2, Host("h", 4, 200)))
    assert isinstance(start, Start)
    assert start.placement == Placement("h", 3, 200)
    audited(ResourceLost(3, "h", "cut off"))
    audited(ResourceJoined(3, Host("h", 3, 200)))  # before the stage has ended there
    assert audited(StageReady(3, stage("b", "x", demand=Demand(cores=1)))) == []
    audited(StageDropped(3, "j", "b"))
    (again,) = audited(StageFailed(4, "j", "a", 0, "cancelled"))
    assert isinstance(again, Start)
    assert (again.stage, again.placement) == ("a", Placement("h", 3, 200))


def test_a_lost_device_may_be_back_with_another_type() -> None:
    audited = Audited(Eager(), RetryLimits(resources_may_join=True))
    for event in (ResourceJoined(0, Device("d", "old")), JobAdded(0, "j"), ResourceLost(1, "d", "cut off")):
        audited(event)
    for type in ("old", "new"):
        assert audited(StageReady(1, stage(type, type, demand=Demand(device=type, exclusive=True)))) == []
    (start,) = audited(ResourceJoined(2, Device("d", "new")))
    assert isinstance(start, Start)
    assert (start.stage, start.placement.device) == ("new", "d")
    assert audited(StageDone(3, "j", "new", 0)) == []


def test_another_device_of_the_type_takes_over(eager: Audited) -> None:
    eager(ResourceJoined(0, Device("far", "cpu-type")))
    eager(StageReady(0, stage("p", "profile", demand=ALONE)))
    eager(ResourceLost(1, "here", "unreachable"))
    (start,) = eager(StageFailed(1, "j", "p", 0, "cancelled"))
    assert isinstance(start, Start)
    assert start.placement == Placement(None, 0, 0, "far", exclusive=True)


def test_stages_share_a_device_unless_one_wants_it_alone(eager: Audited) -> None:
    shared = Demand(device="cpu-type")
    assert len(eager(StageReady(0, stage("a", "x", demand=shared)))) == 1
    assert len(eager(StageReady(0, stage("b", "x", demand=shared)))) == 1
    assert eager(StageReady(0, stage("c", "y", demand=ALONE))) == []
    eager(StageDone(1, "j", "a", 0))
    assert [each.stage for each in eager(StageDone(1, "j", "b", 0))] == ["c"]


def test_of_equal_hosts_one_without_a_device_on_its_cores_comes_first() -> None:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, CPU), ResourceJoined(0, Host("there", 4, 1000))):
        audited(event)
    audited(JobAdded(0, "j"))
    (start,) = audited(StageReady(0, stage("a")))
    assert isinstance(start, Start)
    assert start.placement.host == "there"


def test_stages_of_a_process_stay_on_its_host() -> None:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, Host("there", 4, 1000)), JobAdded(0, "j")):
        audited(event)
    mine = Demand(cores=3)
    first = Stage("a", "j", "select", mine, affinity="j")
    (start,) = audited(StageReady(0, first))
    assert isinstance(start, Start)
    home = start.placement.host
    audited(StageDone(1, "j", "a", 0))
    audited(StageReady(1, stage("filler", "x", demand=mine)))
    (busy,) = audited.auditor.running
    assert busy[0].id == "filler"
    assert audited(StageReady(2, Stage("b", "j", "select", mine, affinity="j"))) == []
    (start,) = audited(StageDone(3, "j", "filler", 0))
    assert isinstance(start, Start)
    assert start.placement.host == home


def test_a_process_on_a_lost_host_begins_anew_on_another() -> None:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, Host("there", 4, 1000)), JobAdded(0, "j")):
        audited(event)
    mine = [Stage(id, "j", "select", Demand(cores=3), affinity="j") for id in ("a", "b")]
    (start,) = audited(StageReady(0, mine[0]))
    assert isinstance(start, Start)
    audited(StageDone(1, "j", "a", 0))
    audited(ResourceLost(2, start.placement.host or "", "cut off"))
    (again,) = audited(StageReady(3, mine[1]))
    assert isinstance(again, Start)
    assert {start.placement.host, again.placement.host} == {"here", "there"}


def test_a_policy_that_starves_jobs_has_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int | None] = []
    monkeypatch.setattr(ReadyQueues, "put", lambda *given: found.append(given[-1]))
    scheduler = Scheduler(Eager())
    scheduler.handle(JobAdded(0, "j"))
    with contextlib.suppress(Exception):  # nothing is in a queue
        scheduler.handle(StageReady(0, stage("a")))
    assert found[0] is None


@pytest.mark.parametrize("priorities", [(1.0, 1.0), (3.0, 1.0), (0.5, 2.0)])
def test_a_job_of_a_larger_share_waits_for_fewer_others(
    priorities: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, int] = {}

    def put(_: object, state: StageState, queue: object, rank: object, patience: int) -> None:
        found[state.stage.job] = patience - job_table._PATIENCE

    monkeypatch.setattr(ReadyQueues, "put", put)
    for job in "jk":
        scheduler = Scheduler(Fair())
        for other, priority in zip("jk", priorities, strict=True):
            scheduler.handle(JobAdded(0, other, priority))
        with contextlib.suppress(Exception):  # nothing is in a queue
            scheduler.handle(StageReady(0, stage("a", job=job)))
    assert found == {
        job: int(job_table._TURNS * sum(priorities) / own) for job, own in zip("jk", priorities, strict=True)
    }


def test_the_job_that_began_first_stays_the_first(eager: Audited) -> None:
    eager(JobAdded(0, "k"))
    for job, id in (("j", "a"), ("k", "a"), ("j", "b")):
        eager(StageReady(0, stage(id, job=job, demand=Demand(cores=1))))
    assert eager.scheduler._table.begun_job() == "j"


def test_a_process_runs_one_stage_at_a_time_of_whatever_kind(eager: Audited) -> None:
    one, other, third = (
        Stage(id, "j", kind, Demand(cores=1), affinity="p") for id, kind in (("a", "x"), ("b", "y"), ("c", "y"))
    )
    assert [type(each) for each in eager(StageReady(1, one))] == [Start]
    assert eager(StageReady(2, other)) == eager(StageReady(3, third)) == []
    (started,) = eager(StageDone(4, "j", "a", 0))
    assert isinstance(started, Start)
    assert started.stage == "b"
    (started,) = eager(StageDone(5, "j", "b", 0))
    assert isinstance(started, Start)
    assert started.stage == "c"


def test_stages_of_a_process_with_a_fixed_home_run_there_and_nowhere_else() -> None:
    audited = Audited(Eager())
    hosts = (HOST, Host("there", 4, 1000))
    for event in (*(ResourceJoined(0, host) for host in hosts), JobAdded(0, "j", home="there")):
        audited(event)
    mine, starts = Demand(cores=3), []
    for number, affinity in enumerate(("j", None)):
        starts += audited(StageReady(0, Stage(f"{number}", "j", f"{number}", mine, affinity=affinity)))
    assert [start.placement.host for start in starts if isinstance(start, Start)] == ["there", "here"]
    audited(ResourceLost(1, "there", "cut off"))
    assert audited(StageFailed(1, "j", "0", 0, "cancelled")) == []  # it does not move
    (start,) = audited(ResourceBack(2, "there"))
    assert isinstance(start, Start)
    assert (start.stage, start.placement.host) == ("0", "there")


def test_a_job_that_moves_takes_the_stages_of_its_process_along() -> None:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, Host("there", 4, 1000)), JobAdded(0, "j", home="here")):
        audited(event)
    mine = Demand(cores=3)
    audited(StageReady(0, Stage("a", "j", "select", mine, affinity="j")))
    assert [type(each) for each in audited(ResourceLost(1, "here", "cut off"))] == [Cancel]
    assert audited(StageFailed(1, "j", "a", 0, "cancelled")) == []
    (start,) = audited(JobMoved(2, "j", "there"))
    assert isinstance(start, Start)
    assert (start.stage, start.placement.host) == ("a", "there")


def test_sequential_runs_one_stage_of_one_job_at_a_time(sequential: Audited) -> None:
    assert [each.stage for each in sequential(StageReady(0, stage("a")))] == ["a"]
    assert sequential(StageReady(0, stage("b"))) == []
    assert sequential(StageReady(0, stage("a", job="k"))) == []
    assert sequential(StageReady(0, stage("p", "profile", demand=ALONE, after=("a",)))) == []
    assert [each.stage for each in sequential(StageDone(1, "j", "a", 0))] == ["b"]
    assert [each.stage for each in sequential(StageDone(2, "j", "b", 0))] == ["p"]
    assert sequential(StageDone(3, "j", "p", 0)) == []
    assert [each.job for each in sequential(JobEnded(4, "j"))] == ["k"]


def test_sequential_takes_the_highest_priority_next(sequential: Audited) -> None:
    sequential(StageReady(0, stage("a")))
    sequential(JobAdded(0, "l"))
    sequential(StageReady(0, stage("a", job="k")))
    sequential(StageReady(0, stage("a", job="l")))
    sequential(PriorityChanged(1, "l", 5))
    sequential(StageDone(2, "j", "a", 0))
    assert [each.job for each in sequential(JobEnded(2, "j"))] == ["l"]


def test_a_cancelled_job_lets_go_and_the_next_begins(sequential: Audited) -> None:
    sequential(StageReady(0, stage("a")))
    sequential(StageReady(0, stage("b")))
    sequential(StageReady(0, stage("a", job="k")))
    assert sequential(JobCancelled(1, "j", "no longer wanted")) == [Cancel("a", "j", 0, "no longer wanted")]
    assert sequential(JobEnded(1, "j")) == []
    assert [each.job for each in sequential(StageFailed(2, "j", "a", 0, "cancelled"))] == ["k"]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        (JobAdded(5, "j"), "added before"),
        (JobEnded(5, "x"), "no such job"),
        (PriorityChanged(5, "x", 1), "no such job"),
        (JobExpects(5, "j", {"k": -1}), "fewer than no stages"),
        (JobExpects(5, "j", {"k": 1}, {"k": -0.5}), "0 seconds or more"),
        (JobExpects(5, "j", {"k": 1}, {"k": float("nan")}), "0 seconds or more"),
        (JobExpects(5, "j", {"k": 1}, {"k": float("inf")}), "0 seconds or more"),
        (StageReady(5, stage("a")), "asked for this stage before"),
        (StageReady(5, stage("z", job="x")), "no such job"),
        (StageDone(5, "j", "b", 0), "not running"),
        (StageDone(5, "j", "a", 1), "attempt 0 of the stage is running"),
        (StageFailed(5, "j", "zzz", 0, "boom"), "not running"),
        (StageDropped(5, "j", "a"), "not waiting"),
        (ResourceJoined(5, HOST), "joined before"),
        (ResourceJoined(5, Device("here", "t")), "joined before"),
        (ResourceJoined(5, Device("d", "t", host="nowhere")), "has not joined"),
        (ResourceJoined(5, Device("d", "t", on_host_cores=True)), "names none"),
        (ResourceJoined(5, Device("d", "t", capacity=0)), "has a capacity of 0"),
        (ResourceLost(5, "nowhere", ""), "no resource"),
        (ResourceBack(5, "here"), "not lost"),
        (JobCancelled(0.5, "j", ""), "lies before"),
    ],
)
def test_an_illegal_event_raises_and_changes_nothing(eager: Audited, event: Event, why: str) -> None:
    eager(StageReady(1, stage("a")))
    with pytest.raises(SchedulerError, match=why):
        eager.scheduler.handle(event)
    assert [each.stage for each in eager(StageReady(1, stage("b")))] == ["b"]


def test_the_error_tells_the_job_s_story(eager: Audited) -> None:
    eager(StageReady(1, stage("a")))
    with pytest.raises(SchedulerError, match=r"(?s)not running.*1\.000 StageReady stage=a.*1\.000 Start stage=a"):
        eager.scheduler.handle(StageDone(2, "j", "b", 0))


def test_a_timer_that_comes_too_late_is_nobody_s_fault(eager: Audited) -> None:
    eager(StageReady(0, stage("a")))
    eager(StageFailed(0, "j", "a", 0, "boom"))
    with pytest.raises(SchedulerError, match="due at 1"):
        eager.scheduler.handle(RetryDue(0.5, "j", "a", 1))
    eager(StageDropped(0.5, "j", "a"))
    assert eager(RetryDue(1, "j", "a", 1)) == []
    assert eager(RetryDue(1, "gone", "a", 1)) == []


def test_a_policy_that_chooses_what_cannot_start_is_found_out() -> None:
    class Careless(Policy):
        name = "careless"

        def choose(self, view: PolicyView) -> Suggestion | None:
            return Suggestion(stage("a"), Placement("here", 99, 0))

    for job in ("j", "another"):
        with pytest.raises(SchedulerError, match="'careless' chose what cannot start"):
            Scheduler(Careless()).handle(JobAdded(0, job))


def test_a_queue_that_is_empty_by_now_fits_nowhere() -> None:
    class Curious(Eager):
        def choose(self, view: PolicyView) -> Suggestion | None:
            seen.extend((view, queue) for queue in view.queues())
            return super().choose(view)

    seen: list[tuple[PolicyView, ReadyQueue]] = []
    scheduler = Scheduler(Curious())
    for event in (ResourceJoined(0, HOST), JobAdded(0, "j"), StageReady(0, stage("a", demand=Demand(cores=1)))):
        scheduler.handle(event)
    ((view, queue),) = seen
    assert view.rank(queue) is None
    assert view.fit(queue) is None


def test_a_story_is_bounded() -> None:
    scheduler = Scheduler(Eager(), RetryLimits(history_length=5))
    scheduler.handle(JobAdded(0, "j"))
    for priority in range(1, 21):
        scheduler.handle(PriorityChanged(0, "j", priority))
    assert len(scheduler.history("j")) == 5
    assert scheduler.history("x") == ()


@pytest.mark.parametrize("demand", [Demand(cores=1, device="gpu"), Demand(memory_mb=1, device="gpu")])
def test_a_stage_on_a_free_device_starts_once_the_host_has_what_it_needs_besides(demand: Demand) -> None:
    audited = Audited(Eager())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, Device("g", "gpu")), JobAdded(0, "j")):
        audited(event)
    assert len(audited(StageReady(0, stage("all", demand=Demand(cores=4, memory_mb=1000))))) == 1
    assert audited(StageReady(0, stage("next", "other", demand=demand))) == []
    (start,) = audited(StageDone(1, "j", "all", 0))
    assert start == Start("next", "j", 0, Placement("here", demand.cores, demand.memory_mb, "g"))


@pytest.mark.parametrize("priority", [0.0, -1.0, float("inf"), float("nan")])
def test_a_priority_is_a_number_above_zero(eager: Audited, priority: float) -> None:
    for event in (JobAdded(0, "k", priority), PriorityChanged(0, "j", priority)):
        with pytest.raises(SchedulerError, match="a number above 0"):
            eager.scheduler.handle(event)


class Listening(Eager):
    """Notes what it is told of ended stages."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, float, bool]] = []

    def stage_ended(self, stage: Stage, job: JobFacts, seconds: float, *, done: bool) -> None:
        self.ended.append((stage.id, seconds, done))


def test_a_policy_is_told_how_long_a_stage_took_and_whether_it_succeeded() -> None:
    policy = Listening()
    audited = Audited(policy)
    for event in (ResourceJoined(0, HOST), JobAdded(0, "j")):
        audited(event)
    audited(StageReady(1, stage("a")))
    audited(StageReady(2, stage("b")))
    audited(StageDone(4, "j", "a", 0))
    audited(StageFailed(9, "j", "b", 0, "boom"))
    assert policy.ended == [("a", 3.0, True), ("b", 7.0, False)]


def test_a_line_of_a_recording_reads_back_as_it_was() -> None:
    step = RecordedStep(StageReady(1, stage("a")), (Start("a", "j", 0, Placement("here", 2, 100)),))
    for line in (ScheduleHeader("fair", bundling=True, names={"j": "a job"}), step):
        text = encode_line(line)
        assert text.count(b"\n") == text.endswith(b"\n") == 1
        assert decode_line(text) == line
    assert ScheduleHeader("fair").version == RECORDING_VERSION


def test_a_device_that_is_free_again_is_for_stages_on_other_hosts_as_well() -> None:
    """However few cores are free on the host of the stage that had it."""
    audited = Audited(Eager())
    for event in (ResourceJoined(0, Host("few", 1, 0)), ResourceJoined(0, Host("many", 4, 0))):
        audited(event)
    for event in (ResourceJoined(0, Device("g", "gpu", capacity=1)), JobAdded(0, "j", home="few"), JobAdded(0, "k")):
        audited(event)
    (start,) = audited(StageReady(0, Stage("a", "j", "x", Demand(cores=1, device="gpu"), affinity="j")))
    assert isinstance(start, Start)
    assert start.placement == Placement("few", 1, 0, "g")
    assert audited(StageReady(0, Stage("b", "k", "x", Demand(cores=3, device="gpu")))) == []
    assert audited(StageDone(1, "j", "a", 0)) == [Start("b", "k", 0, Placement("many", 3, 0, "g"))]


@pytest.mark.parametrize("demand", [Demand(cores=4), Demand(device="gpu", exclusive=True)])
def test_with_bundling_a_job_goes_on_with_what_it_had_before_any_other(demand: Demand) -> None:
    """If it said so; else the other one, of higher priority, is next."""
    for then, following in ((demand, "low"), (None, "high"), (Demand(cores=1, memory_mb=7), "high")):
        audited = Audited(Eager(), RetryLimits(bundling=True))
        for event in (ResourceJoined(0, HOST), ResourceJoined(0, Device("g", "gpu")), JobAdded(0, "low")):
            audited(event)
        audited(JobAdded(0, "high", 5.0))
        assert len(audited(StageReady(0, Stage("a", "low", "x", demand, then=then)))) == 1
        assert audited(StageReady(0, Stage("b", "high", "x", demand))) == []
        started = audited(StageDone(1, "low", "a", 0))
        started += audited(StageReady(1, Stage("c", "low", "x", demand)))
        assert [each.job for each in started if isinstance(each, Start)] == [following]


def test_a_retry_that_is_due_for_another_attempt_or_for_what_runs_changes_nothing(eager: Audited) -> None:
    eager(StageReady(0, stage("a")))
    for attempt in (0, 1):
        assert eager(RetryDue(1, "j", "a", attempt)) == []
    assert eager(RetryDue(1, "j", "unknown", 0)) == eager(RetryDue(1, "unknown", "a", 0)) == []
    eager(StageFailed(1, "j", "a", 0, "boom"))
    for attempt in (0, 2):
        assert eager(RetryDue(5, "j", "a", attempt)) == []
    assert len(eager(RetryDue(5, "j", "a", 1))) == 1
    assert eager(StageDone(6, "j", "a", 1)) == []


class Astray(Eager):
    """Suggests the other host."""

    def choose(self, view: PolicyView) -> Suggestion | None:
        found = super().choose(view)
        return found and Suggestion(found.stage, Placement("there", 2, 100))


@pytest.mark.parametrize(
    ("home", "affinity", "may"), [("here", "j", False), ("there", "j", True), ("here", None, True)]
)
def test_no_policy_starts_a_stage_away_from_its_process(home: str, affinity: str | None, may: bool) -> None:
    scheduler = Scheduler(Astray())
    for event in (ResourceJoined(0, HOST), ResourceJoined(0, Host("there", 4, 1000)), JobAdded(0, "j", home=home)):
        scheduler.handle(event)
    ready = StageReady(0, Stage("a", "j", "x", CORES, affinity=affinity))
    if may:
        assert len(scheduler.handle(ready)) == 1
    else:
        with pytest.raises(SchedulerError, match="chose what cannot start"):
            scheduler.handle(ready)
