from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from kintune.errors import InputError
from kintune.scheduler.events import Decision, Event, JobEnded, RecordedStep, ScheduleHeader, encode_line
from kintune.scheduler.policies import policy
from kintune.scheduler.resources import Device, Host
from kintune.scheduler.scheduler import RetryLimits, Scheduler
from kintune_lab.simulate.faults import Faults
from kintune_lab.simulate.history import ScheduleHistory
from kintune_lab.simulate.plan import MockJob
from kintune_lab.simulate.recorded import Recorded, read_recording, retrace
from kintune_lab.simulate.simulation import again, simulate_recorded
from kintune_lab.simulate.simulator import Simulator

RESOURCES = (Host("host", 1, 1000), Device("gpu", "gpu"))
JOB = MockJob(
    device="gpu", rounds=3, select_s=2, build_s=3, profile_s=5, update_s=1, inflight=2, foretells=("profile",)
)


def record(name: str = "fair", faults: Faults | None = None) -> tuple[ScheduleHistory, Recorded]:
    """A simulated schedule of two jobs, and its recording."""
    steps: list[RecordedStep] = []

    def observe(event: Event, decisions: Sequence[Decision]) -> None:
        steps.append(RecordedStep(event, tuple(decisions)))

    machine = Scheduler(policy(name), RetryLimits(bundling=True))
    jobs = [JOB.plan(job) for job in "ab"]
    history = Simulator(machine, RESOURCES, jobs, faults=faults or Faults(), observe=observe).run()
    return history, Recorded(
        "s.jsonl", ScheduleHeader(name, bundling=True, names={"a": "net", "b": "net"}), tuple(steps)
    )


def write(path: Path, recorded: Recorded, cut: int = 0) -> str:
    text = b"".join(map(encode_line, (recorded.header, *recorded.steps)))
    path.write_bytes(text[: len(text) - cut])
    return str(path)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    _, recorded = record()
    read = read_recording(write(tmp_path / "s.jsonl", recorded))
    assert (read.header, read.steps, read.resources) == (recorded.header, recorded.steps, RESOURCES)
    read.play_again()


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    _, recorded = record()
    assert read_recording(write(tmp_path / "s.jsonl", recorded, cut=3)).steps == recorded.steps[:-1]


def test_a_recording_tells_what_has_happened() -> None:
    history, recorded = record(faults=Faults(seed=2, failing=0.2))
    traced = retrace(recorded)
    names = {"a": "net", "b": "net (2)"}

    def facts(of: ScheduleHistory, names: dict[str, str]) -> list[tuple[object, ...]]:
        return sorted((names.get(s.job, s.job), s.stage, s.attempt, s.start, s.end, s.ending.value) for s in of.spans)

    assert facts(traced.history, {}) == facts(history, names)
    ends = {names[job.job]: (job.end, job.ending) for job in history.jobs}
    assert {job.job: (job.end, job.ending) for job in traced.history.jobs} == ends
    assert any(span.attempt for span in traced.history.spans)


def test_its_jobs_can_be_played_again() -> None:
    history, recorded = record()
    traced = retrace(recorded)
    assert [job.foretold for job in traced.jobs] == [{"a/profile": 5.0}, {"b/profile": 5.0}]
    assert sorted(sum(p.seconds for p in job.stages) for job in traced.jobs) == [33.0, 33.0]
    simulated = simulate_recorded(recorded, setups=again(recorded), audit=True)
    labels = [outcome.setup for outcome in simulated.outcomes]
    assert labels[0] == "as recorded (fair)"
    assert labels[1:] == ["sequential, bundled", "greedy, bundled", "fair, bundled", "predictive, bundled"]
    assert simulated.outcomes[0].makespan_s == max(job.end for job in history.jobs)
    assert simulated.outcomes[1].makespan_s >= simulated.outcomes[0].makespan_s


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda lines: lines[1:], "is no recorded schedule"),
        (lambda lines: [], "is no recorded schedule"),
        (lambda lines: [lines[0], b'{"type":"nothing"}', *lines[1:]], "s.jsonl:2: is no line"),
        (lambda lines: [lines[0], b"garbage", *lines[1:]], "s.jsonl:2: is no line"),
        (lambda lines: [*lines[:4], lines[0], *lines[4:]], "s.jsonl:5: a second schedule begins"),
        (lambda lines: [lines[0].replace(b'"version":1', b'"version":9'), *lines[1:]], "another version"),
        (lambda lines: [lines[0].replace(b'"fair"', b'"foul"'), *lines[1:]], "another version"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, spoil: object, said: str) -> None:
    _, recorded = record()
    lines = [msgspec.json.encode(line) for line in (recorded.header, *recorded.steps)]
    path = tmp_path / "s.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in spoil(lines)))  # type: ignore[operator]
    with pytest.raises(InputError) as raised:
        read_recording(str(path))
    assert said in str(raised.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl: cannot be read"):
        read_recording("nowhere.jsonl")


def test_what_was_cut_off_is_not_compared() -> None:
    _, recorded = record()
    last = max(n for n, step in enumerate(recorded.steps) if isinstance(step.event, JobEnded))
    short = recorded._replace(steps=recorded.steps[:last])
    with pytest.raises(InputError, match=r"s\.jsonl: was cut off while net( \(2\))? was under way"):
        simulate_recorded(short, setups=again(short))
    with pytest.raises(InputError, match="cut off before the first job"):
        simulate_recorded(recorded._replace(steps=()), setups=[])


def test_decisions_that_would_not_be_made_today_are_named() -> None:
    _, recorded = record()
    at = next(n for n, step in enumerate(recorded.steps) if step.decisions)
    forged = list(recorded.steps)
    forged[at] = RecordedStep(forged[at].event)
    with pytest.raises(InputError, match=rf"s\.jsonl:{at + 2}: today's scheduler decides otherwise"):
        recorded._replace(steps=tuple(forged)).play_again()


def test_events_that_cannot_happen_are_named() -> None:
    _, recorded = record()
    with pytest.raises(InputError, match=r"s\.jsonl:4: cannot have happened"):
        recorded._replace(steps=(*recorded.steps[:2], recorded.steps[-1], *recorded.steps[2:])).play_again()
