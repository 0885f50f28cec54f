"""Journals of toy jobs over records, their entries, and the commit of one timing."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from kintune.core.candidate import Candidate
from kintune.core.config import JobSpec
from kintune.core.messages import ItemStatus, Work
from kintune.core.stage import Demand, Stage
from kintune.core.stage_requests import BuildItem, Built, ProfileItem
from kintune.core.stage_results import KnownCandidate, Prepared, StageName
from kintune.records import Store
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from kintune.tuning.front.journal import TuningJournal
from kintune.workers.engine.journal import JournalEntry
from tests.support.toy_tools import ToyTools, toy_space, toy_spec

__all__ = [
    "COMPILER",
    "FEATURES",
    "SPEC_DEVICE",
    "ToyJournals",
    "commit_timing",
    "item_of",
    "kin_space",
    "known_to",
    "preparation",
    "work_of",
]

COMPILER = "tvm 0"
SPEC_DEVICE = toy_spec().device_type.digest
FEATURES = "toy-features"


class ToyJournals:
    """Makes journals over records."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def journal(
        self,
        spec: JobSpec,
        *,
        compiler: str = COMPILER,
        use_known: bool = True,
        hidden: Callable[[], Collection[str]] = frozenset,
    ) -> TuningJournal:
        """A journal of this run, as a new process opens it."""
        if all(run.run_id != spec.run_id for run in self.store.runs.list()):
            self.store.runs.create(spec.run_id, key="k", model_name="toy", spec=msgspec.msgpack.encode(spec))
        journal = TuningJournal(self.store, FEATURES)
        journal.enter(spec, compiler, use_known=use_known, hidden=hidden)
        return journal


def commit_timing(journal: TuningJournal, run: str, status: ItemStatus, payload: bytes, cause: str) -> None:
    """Commit one timing of the rule's first candidate."""
    journal.commit(run, preparation())
    candidate = toy_space().rules("w0", 1)[0]
    journal.watch(run, work_of(StageName.BUILD, BuildItem(candidate)))
    journal.watch(run, work_of(StageName.PROFILE, item_of(StageName.PROFILE, candidate)))
    journal.commit(run, JournalEntry(1.0, StageName.PROFILE, 0, StageName.PROFILE, 0, status, payload, cause=cause))


def known_to(journal: TuningJournal, run: str = "run") -> tuple[KnownCandidate, ...]:
    """The known candidates that a run gets when its network is prepared."""
    event = journal.commit(run, preparation())[1]
    return msgspec.msgpack.decode(event.payload, type=tuple[KnownCandidate, ...])


def kin_space() -> SyntheticSpace:
    """Another network, with the operators of the toy one."""
    return SyntheticSpace([MatMul("k0", 64, 320, 64, operator="dense0"), MatMul("k1", 128, 128, 64, operator="dense1")])


def preparation() -> JournalEntry:
    """The entry that the toy network was prepared."""
    prepared: Prepared = ToyTools().prepare(toy_spec())
    payload = msgspec.msgpack.encode(prepared)
    return JournalEntry(0.5, StageName.PREPARE, 0, StageName.PREPARE, 0, ItemStatus.OK, payload)


def item_of(kind: str, candidate: Candidate) -> BuildItem | ProfileItem:
    """The item of a stage of this kind for this candidate."""
    if kind == StageName.BUILD:
        return BuildItem(candidate)
    return ProfileItem(candidate.workload, Built(candidate.digest, b"library"))


def work_of(kind: str, *items: BuildItem | ProfileItem) -> Work:
    """A stage with these items, whose id is its kind."""
    return Work(Stage(kind, "run", kind, Demand()), "worker", b"", tuple(map(msgspec.msgpack.encode, items)), 1.0)
