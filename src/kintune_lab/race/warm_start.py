"""Warm starts: teacher networks are tuned first, and the search under test gets what the records hold of them.

"hits": the records may hold the network's own workloads; their fastest programs are measured first.
"kin": everything measured on a workload of the network is left out, programs and samples alike.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from kintune.core.candidate import UNTUNED, Candidate, digest_of
from kintune.core.config import Options
from kintune.core.report import ProgressReport, StopReason
from kintune.core.version import FEATURES
from kintune.errors import EngineError
from kintune.files import write_whole
from kintune.models.ref import parse_ref
from kintune.records import Store
from kintune.search.family import Subject
from kintune.transfer.gather import gather_knowledge
from kintune.tuning.front import driver
from kintune.tuning.front.request import TuneRequest
from kintune_lab.race.tuner_process import WarmStartSource
from kintune_lab.tuners.messages import TunerReady, WarmStart

__all__ = ["HITS", "KIN", "NONE", "TeachingPlan", "tune_teachers", "warm_start_from"]

NONE, HITS, KIN = "none", "hits", "kin"

_SUGGESTIONS = 8  # programs of each workload that are measured first
_LEAST_MINUTES = 0.1  # a rest that is not worth beginning anew for


class TeachingPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is taught: the networks (as `kintune tune` takes them), tuned for `minutes` each with `threads` threads.

    `contents` digests those that are files.
    """

    teachers: tuple[str, ...]
    minutes: float
    threads: int
    contents: str = ""

    @property
    def id(self) -> str:
        """The name of the files of its records."""
        return digest_of(msgspec.json.encode(self))[:12]


class _Taught(msgspec.Struct, frozen=True):
    """The number of teachers that are done, and the seconds that the next one was tuned before an interruption."""

    teachers: int = 0
    seconds: float = 0.0


def tune_teachers(plan: TeachingPlan, directory: Path, show: Callable[[str, float], None]) -> Path:
    """The records of this plan in `directory`, made unless they are there; the same for all cells of a bench.

    A teacher that was interrupted is resumed, for the rest of its minutes.  `show` is called with the network that is
    tuned, and with the share of all that is done.  Takes the cores itself.

    Raises:
        KintuneError: as `kintune tune` does.
    """
    directory.mkdir(parents=True, exist_ok=True)
    records, notes = directory / f"{plan.id}.sqlite", directory / f"{plan.id}.json"
    taught = _taught(notes)
    for number, teacher in list(enumerate(plan.teachers))[taught.teachers :]:
        spent_s = taught.seconds if number == taught.teachers else 0.0
        minutes = plan.minutes - spent_s / 60
        if spent_s and minutes < _LEAST_MINUTES:
            write_whole(notes, msgspec.json.encode(number + 1))
            continue
        work = directory / f"{plan.id}-work"
        work.mkdir(exist_ok=True)

        def progress(
            report: ProgressReport, number: int = number, teacher: str = teacher, spent_s: float = spent_s
        ) -> None:
            share = min(1.0, (spent_s + report.elapsed_s) / (60 * plan.minutes))
            show(f"teaching: tuning {teacher}, {report.trials} trials", (number + share) / len(plan.teachers))

        try:
            report = driver.tune(_request(plan, teacher, minutes, records, work), progress)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        if report.reason is StopReason.INTERRUPTED:
            write_whole(notes, msgspec.json.encode(_Taught(number, spent_s + report.seconds)))
            raise KeyboardInterrupt
        write_whole(notes, msgspec.json.encode(number + 1))
    return records


def _taught(notes: Path) -> _Taught:
    if not notes.exists():
        return _Taught()
    found = msgspec.json.decode(notes.read_bytes(), type=int | _Taught)
    return _Taught(found) if isinstance(found, int) else found


def warm_start_from(records: Path, knowledge: str, families: str, seed: int, threads: int) -> WarmStartSource:
    """Returns a function that makes a warm start from the records, for a search with the algorithm `families`.

    `knowledge` is HITS or KIN.
    """

    def gathered(ready: TunerReady) -> WarmStart:
        subjects = [
            Subject(s.workload, s.weight, s.flops, s.operator, s.signature) for s in ready.subgraphs if s.tunable
        ]
        own = frozenset(s.workload for s in ready.subgraphs)
        with Store.open(str(records)) as store:
            device_type, compiler = _conditions(store)
            known = gather_knowledge(
                store,
                device_type,
                compiler,
                FEATURES,
                subjects,
                families=families,
                exclude=own if knowledge == KIN else (),
                seed=seed,
                threads=threads,
            )
            suggestions = _fastest(store, device_type, compiler, own) if knowledge == HITS else ()
        return WarmStart(known, suggestions)

    return gathered


def _request(plan: TeachingPlan, teacher: str, minutes: float, records: Path, work: Path) -> TuneRequest:
    return TuneRequest(
        model=parse_ref(teacher),
        target="native",
        threads=plan.threads,
        options=Options(minutes=minutes, compare=()),
        records=str(records),
        output=str(work / "tuned.kt"),
        log=str(records.with_suffix(".log")),
    )


def _conditions(store: Store) -> tuple[str, str]:
    """The device type and the compiler that taught."""
    tallies = Counter[tuple[str, str]]()
    for tally in store.measurements.tallies():
        tallies[tally.device_type, tally.compiler] += tally.measured
    if not tallies:
        raise EngineError("the teachers have taught nothing: their records hold no measurement")
    return tallies.most_common(1)[0][0]


def _fastest(store: Store, device_type: str, compiler: str, workloads: frozenset[str]) -> tuple[Candidate, ...]:
    """The best programs of these workloads, which are to be measured again: their times are of another protocol."""
    return tuple(
        measurement.candidate
        for workload in sorted(workloads)
        for measurement in store.measurements.fastest(workload, device_type, compiler, _SUGGESTIONS)
        if measurement.candidate.sketch != UNTUNED
    )
