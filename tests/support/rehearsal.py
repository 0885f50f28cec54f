"""A tuning job played without processes: the engine, the workers and the journal in one thread.

What is committed is what the real journal keeps, so a job that is opened again from `history` has lost what it would
lose with its process.  What workers answer is up to a `Cast`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.device import Peak
from kintune.core.knowledge import Knowledge
from kintune.core.messages import Committed, Finished, ItemStatus, OfferStages, Progress, StageClosed, Work
from kintune.core.outcome import Outcome
from kintune.core.report import ProgressReport
from kintune.core.stage_requests import BuildItem, Built, ProfileItem, ValidationItem
from kintune.core.stage_results import (
    BaselineLatencies,
    DraftResult,
    KnownCandidate,
    Profiled,
    Selected,
    StageName,
    Taught,
    Updated,
    ValidationResult,
)
from kintune.core.verdict import Verdict
from kintune.testing.synthetic_space import SyntheticSpace
from kintune.tuning.job.backend import CompilerBackend
from kintune.tuning.job.job import TuningJob
from kintune.tuning.job.outcomes import MEASURING, built_of, profiled_of
from kintune.wire.job_loop import JOB_WORKER, Saying
from kintune.workers.engine.journal import Journal, JournalEntry
from tests.support.toy_tools import toy_space

__all__ = ["Cast", "PlainJournal", "Rehearsal", "WatchingJournal"]

_encode = msgspec.msgpack.encode


def _decode(payload: bytes, kind: Any) -> Any:
    return msgspec.msgpack.decode(payload, type=kind)


class Cast:
    """The workers: what comes of a candidate is what its space says.  Tests override what they are about."""

    def __init__(self, space: SyntheticSpace | None = None) -> None:
        self.space = space or toy_space()

    def build(self, candidate: Candidate) -> Built:
        """BUILD's answer."""
        outcome = self.space.measure(candidate)
        return Built(candidate.digest, artifact=b"library", failure=None if outcome.ok else outcome)

    def time(self, candidate: Candidate, kind: str) -> Outcome:
        """PROFILE's or CONFIRM's answer (`kind` says which)."""
        del kind
        return self.space.measure(candidate)

    def seconds(self, kind: str) -> float:
        """What an item of such a stage is said to have taken."""
        return 0.25 if kind == StageName.BUILD else 0.0

    def prove(self) -> ValidationResult:
        """PROVE's answer."""
        return ValidationResult({"tuned": (1.0,), "untuned": (2.0,)}, 0.0, 0.0, Verdict.RIGHT, ("untuned",), {})

    def check(self, draft: Mapping[str, str]) -> ValidationResult:
        """CHECK's answer for the candidates (digests) of a draft by workload."""
        del draft
        return ValidationResult({}, 0.0, 0.0, Verdict.RIGHT, ("onnxruntime",), {})

    def error(self, draft: Mapping[str, str]) -> ValidationResult:
        """ERROR's answer for the candidates (digests) of a network in precisions that are tried, by workload."""
        del draft
        return ValidationResult({}, 0.0, 0.0, Verdict.RIGHT, ("onnxruntime",), {}, norm_error=0.0)

    def baselines(self) -> BaselineLatencies:
        """BASELINE's answer: onnxruntime takes a fifth of a millisecond."""
        return BaselineLatencies(({"onnxruntime": (0.21, 0.2, 0.19)},))

    def peak(self) -> Peak:
        """PEAK's answer: that of the machine of `SyntheticSpace`, whose arguments need no memory."""
        return Peak(gflops=self.space.peak_gflops, gbytes_per_s=1e6, threads=1)


class WatchingJournal(Journal, Protocol):
    """A journal that is told of the stages that begin, as that of tuning jobs is."""

    def watch(self, job: str, work: Work) -> None:
        """A stage begins."""


class PlainJournal:
    """A journal of one job, in memory: what it keeps is what the records keep.

    The job is told what is `known` of its workloads, the `knowledge` of others, and the device's `peak`.
    """

    def __init__(
        self,
        history: Sequence[Committed] = (),
        known: Sequence[KnownCandidate] = (),
        knowledge: Knowledge | None = None,
        peak: Peak | None = None,
    ) -> None:
        self._events = list(history)
        self._known = _encode(tuple(known))
        self._taught = _encode(Taught(knowledge or Knowledge(), peak=peak))
        self._stages: dict[str, Work] = {}

    def watch(self, job: str, work: Work) -> None:
        """A stage begins."""
        del job
        self._stages[work.stage.id] = work

    def history(self, job: str) -> Sequence[Committed]:
        """All events, without what can be made again."""
        del job
        return tuple(self._events)

    def active_seconds(self, job: str) -> float:
        """The time of the last event."""
        del job
        return self._events[-1].at if self._events else 0.0

    def commit(self, job: str, entry: JournalEntry) -> Sequence[Committed]:
        """Append the entry, after PREPARE also what is known and taught."""
        del job
        told = kept = entry.payload
        if entry.kind == StageName.BUILD:
            told = _encode(built_of(self._candidate(entry), entry.status, entry.payload, entry.cause))
            kept = _encode(msgspec.structs.replace(_decode(told, Built), artifact=b"", operands=()))
        elif entry.kind in MEASURING:
            told = kept = _encode(profiled_of(self._candidate(entry), entry.status, entry.payload, entry.cause))
        elif entry.kind == StageName.UPDATE and entry.status is ItemStatus.OK:
            kept = _encode(msgspec.structs.replace(_decode(told, Updated), blobs={}))
        events = [self._append(entry, told, kept)]
        if entry.kind == StageName.PREPARE and entry.status is ItemStatus.OK:
            for kind, payload in ((StageName.KNOWN, self._known), (StageName.KIN, self._taught)):
                events.append(
                    self._append(JournalEntry(entry.at, kind, 0, kind, 0, ItemStatus.OK, payload), payload, payload)
                )
        return events

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is committed within is forgotten when the block ends with an exception."""
        before = len(self._events)
        try:
            yield
        except BaseException:
            del self._events[before:]
            raise

    def _append(self, entry: JournalEntry, told: bytes, kept: bytes) -> Committed:
        event = Committed(
            len(self._events), entry.at, entry.stage, 0, entry.kind, entry.index, entry.status, kept, entry.cause,
            entry.seconds,
        )  # fmt: skip
        self._events.append(event)
        return msgspec.structs.replace(event, payload=told)

    def _candidate(self, entry: JournalEntry) -> str:
        item = self._stages[entry.stage].items[entry.index]
        if entry.kind == StageName.BUILD:
            return str(_decode(item, BuildItem).candidate.digest)
        return str(_decode(item, ProfileItem).built.candidate)


class Rehearsal:
    """One session of a job over a journal, in which every event takes `pace` seconds.

    After each event `interfere` is called with this rehearsal, and may `stop` the job, or `kill_process` or `kill` the
    whole session.  `timed` counts how often a worker timed each candidate (digest), by kind of stage.
    `checks` are the items of all checks, in order.
    """

    def __init__(
        self,
        backend: Callable[[], CompilerBackend],
        spec: JobSpec,
        cast: Cast | None = None,
        *,
        journal: WatchingJournal | None = None,
        pace: float = 1.0,
        interfere: Callable[[Rehearsal], None] | None = None,
    ) -> None:
        self.finished: Finished | None = None
        self.progress: list[ProgressReport] = []
        self.timed: Counter[tuple[str, str]] = Counter()
        self.checks: list[ValidationItem] = []
        self._new_tools = backend
        self._spec = spec
        self._cast = cast or Cast()
        self._journal = journal or PlainJournal()
        self._pace = pace
        self._interfere = interfere or _leave_alone
        self._open: dict[str, tuple[Work, list[int]]] = {}
        self._closed: set[str] = set()
        self._candidates: dict[str, Candidate] = {}
        self._stopped = ""
        self._killed = False
        self._drafted: Mapping[str, str] = {}

    def run(self) -> Rehearsal:
        """Play until the job has finished or the session was killed."""
        self.kill_process()
        while self.finished is None and not self._killed:
            self._turn()
        return self

    def stop(self, reason: str = "interrupted") -> None:
        """Ask the job to finish with what there is; droppable stages lose the items that have not begun."""
        self._stopped = reason
        self._hear(self.job.stop(reason))
        for work, left in self._open.values():
            if work.droppable:
                left.clear()

    def kill_process(self) -> None:
        """Replace the job's process by another one; stages that are under way go on."""
        self.job = TuningJob(self._new_tools(), "toy-features")
        self._hear(self.job.open(self._spec.run_id, _encode(self._spec), self.history))
        if self._stopped:
            self._hear(self.job.stop(self._stopped))

    def kill(self) -> None:
        """End the session with all its processes."""
        self._killed = True

    @property
    def history(self) -> Sequence[Committed]:
        """All that is committed."""
        return self._journal.history(self._spec.run_id)

    @property
    def selections(self) -> list[Selected]:
        """What was selected, round by round."""
        ok = (e for e in self.history if e.kind == StageName.SELECT and e.status is ItemStatus.OK)
        return [_decode(event.payload, Selected) for event in ok]

    @property
    def picks(self) -> dict[int, tuple[Candidate, ...]]:
        """The candidates selected, by round."""
        return {selected.round: tuple(pick.candidate for pick in selected.picks) for selected in self.selections}

    def outcomes(self, kind: str) -> list[Profiled]:
        """What PROFILE or CONFIRM has yielded."""
        return [_decode(event.payload, Profiled) for event in self.history if event.kind == kind]

    def counts(self, kind: str) -> int:
        """How many events of this kind there are."""
        return sum(event.kind == kind for event in self.history)

    def _turn(self) -> None:
        if not self._open:
            raise AssertionError("the job has neither finished nor anything to do")
        stage, (work, left) = next(iter(self._open.items()))
        if left:
            self._do(work, left.pop(0))
            self._interfere(self)
        if not self._killed and not left:
            del self._open[stage]
            self._closed.add(stage)
            self._hear(self.job.closed(StageClosed(stage, 0, self._now(), 0.0)))

    def _hear(self, sayings: Iterable[Saying]) -> None:
        for saying in sayings:
            match saying:
                case OfferStages():
                    for work in saying.works:
                        self._offered(work)
                case Progress():
                    self.progress.append(msgspec.msgpack.decode(saying.payload, type=ProgressReport))
                case Finished():
                    self.finished = saying

    def _offered(self, work: Work) -> None:
        if work.stage.id in self._closed:
            raise AssertionError(f"stage {work.stage.id} is offered a second time")
        dropped = self._stopped and work.droppable
        if work.stage.id not in self._open:
            self._open[work.stage.id] = (work, [] if dropped else list(range(len(work.items))))
            self._journal.watch(self._spec.run_id, work)

    def _do(self, work: Work, index: int) -> None:
        status, payload, cause = ItemStatus.OK, b"", ""
        try:
            payload = self._answer(work, work.items[index])
        except Exception as error:  # as a worker answers for its handler
            status, cause = ItemStatus.FAILED, f"{type(error).__name__}: {error}"
        seconds = self._cast.seconds(work.stage.kind)
        entry = JournalEntry(self._now(), work.stage.id, 0, work.stage.kind, index, status, payload, cause, seconds)
        for event in self._journal.commit(self._spec.run_id, entry):
            self._hear(self.job.accept(event, more=False))

    def _answer(self, work: Work, item: bytes) -> bytes:
        kind = work.stage.kind
        if work.worker == JOB_WORKER:
            self.job.begin(kind, work.context)
            answer = self.job.item(item)
            if (
                kind in (StageName.DRAFT, StageName.PRECISION)
                and (packaged := _decode(answer, DraftResult).packaged) is not None
            ):
                self._drafted = packaged.chosen
            return answer
        if kind == StageName.PROVE:
            return _encode(self._cast.prove())
        if kind == StageName.CHECK:
            self.checks.append(_decode(item, ValidationItem))
            return _encode(self._cast.check(self._drafted))
        if kind == StageName.ERROR:
            return _encode(self._cast.error(self._drafted))
        if kind == StageName.BASELINE:
            return _encode(self._cast.baselines())
        if kind == StageName.PEAK:
            return _encode(self._cast.peak())
        if kind == StageName.BUILD:
            candidate = _decode(item, BuildItem).candidate
            self._candidates[candidate.digest] = candidate
            return _encode(self._cast.build(candidate))
        digest = _decode(item, ProfileItem).built.candidate
        self.timed[kind, digest] += 1
        return _encode(self._cast.time(self._candidates[digest], kind))

    def _now(self) -> float:
        return self._pace * len(self.history)


def _leave_alone(_: Rehearsal) -> None:
    pass
