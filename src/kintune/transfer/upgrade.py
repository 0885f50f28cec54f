"""Upgrades measurements of earlier versions of programs to today's, where their decisions say the same.

A measurement of an earlier version is of no use to a search but as a sample for training: no program is built from it.
"""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Candidate, Decision, Sketch
from kintune.records import Measurement, Store
from kintune.search.sketch_program import program_of
from kintune.wire.worker_client import interview

__all__ = ["CONVERT", "NAMES", "Converted", "EarlierSketch", "UpgradeSummary", "upgrade_records"]

NAMES, CONVERT = "names", "convert"
"""Stages of the worker: which names of programs are of today, and the `Converted` of an `EarlierSketch`."""

_WORKER = "kintune.workers.upgrade_worker"


class UpgradeSummary(msgspec.Struct, frozen=True):
    """How many measurements were converted, kept for training alone, dropped, and were of today already.

    Dropped are those of which nothing can be learned (they have no features), and those whose converted program had
    been measured already.
    """

    converted: int = 0
    training: int = 0
    dropped: int = 0
    current: int = 0


class EarlierSketch(msgspec.Struct, frozen=True):
    """A sketch of an earlier program, decisions in it, and its workload (serialised)."""

    sketch: Sketch
    decided: tuple[tuple[Decision, ...], ...]
    module: bytes


class Converted(msgspec.Struct, frozen=True):
    """The sketch of today, and the decisions in it; None where they mean nothing there."""

    sketch: Sketch | None
    decided: tuple[tuple[Decision, ...] | None, ...] = ()


def upgrade_records(store: Store) -> UpgradeSummary:
    """Convert the measurements of earlier programs whose decisions say the same of one of today; see `UpgradeSummary`.

    Raises:
        DamagedRecord: a record is damaged.
        EngineError: the process that knows the programs fails.
    """
    with store.snapshot():
        sketches = {s.digest: s for s in store.workloads.sketches(w.digest for w in store.workloads.list())}
        measured: dict[str, list[Measurement]] = {}
        for measurement in store.measurements.find():
            measured.setdefault(measurement.candidate.sketch, []).append(measurement)
        written = {digest: name for digest in measured if digest in sketches and (name := program_of(sketches[digest]))}
        workloads = {sketches[digest].workload for digest in written}
        modules = {workload: store.workloads.module(workload) for workload in workloads}
    found: dict[int, Candidate] = {}
    left: list[Measurement] = []
    added: list[Sketch] = []
    if written:
        with interview(_WORKER) as worker:
            names = sorted(set(written.values()))
            today = msgspec.msgpack.decode(worker.ask(NAMES, b"", msgspec.msgpack.encode(names)), type=set[str])
            for digest in (digest for digest, name in written.items() if name not in today):
                own, sketch = measured[digest], sketches[digest]
                earlier = EarlierSketch(sketch, tuple(m.candidate.decisions for m in own), modules[sketch.workload])
                answer = worker.ask(CONVERT, b"", msgspec.msgpack.encode(earlier))
                converted = msgspec.msgpack.decode(answer, type=Converted)
                if converted.sketch is None:
                    left += own
                    continue
                added.append(converted.sketch)
                for measurement, decisions in zip(own, converted.decided, strict=True):
                    if decisions is None:
                        left.append(measurement)
                    else:
                        found[measurement.id] = Candidate(sketch.workload, converted.sketch.digest, decisions)
    useless = [m.id for m in left if not m.features]
    with store.transaction():
        for sketch in added:
            store.workloads.add_sketch(sketch)
        kept = store.measurements.rename(found)
        store.measurements.remove(useless)
    return UpgradeSummary(
        converted=kept,
        training=len(left) - len(useless),
        dropped=len(useless) + len(found) - kept,
        current=sum(map(len, measured.values())) - len(left) - len(found),
    )
