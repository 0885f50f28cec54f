"""Exchange of measurements between the records and a stock MetaSchedule database; free of TVM."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome, Status
from kintune.core.workload import Subgraph
from kintune.records import ImportSummary, Measurement, Store
from kintune.wire.worker_client import interview

__all__ = [
    "FOREIGN",
    "Exported",
    "ForeignMeasurement",
    "TuningDatabase",
    "absorb",
    "export_metaschedule",
    "gather",
    "read_metaschedule",
]


FOREIGN = "metaschedule"
"""Compiler and protocol of imported measurements, so that they are never compared with Kintune's own."""


def gather(store: Store, run_id: str | None = None) -> TuningDatabase:
    """Returns the measurements of a run, or all, with their workloads and sketches.

    They are of one device type and compiler, since a foreign tuner takes the fastest of all: of those with the most
    measurements, where measurements by Kintune come before imported ones.  Others are left out and counted.  Confirmed
    times are used instead of first ones.

    Raises:
        DamagedRecord: a record is damaged.
    """
    with store.snapshot():
        found, others = _alike(store.measurements.find(run_id=run_id))
        digests = sorted({measurement.candidate.workload for measurement in found})
        known = [store.workloads.get(digest) for digest in digests]
        targets = {digest: store.devices.get(digest).target for digest in {m.device_type for m in found}}
        return TuningDatabase(
            subgraphs=tuple(Subgraph(w.name, w.digest, 1, w.flops, w.operator, w.signature, True) for w in known),
            modules={digest: store.workloads.module(digest) for digest in digests},
            sketches=store.workloads.sketches(digests),
            measured=tuple(
                ForeignMeasurement(m.candidate, (m.confirmed or m.outcome).times_us, targets[m.device_type])
                for m in found
            ),
            skipped={"measured under other conditions": others} if others else {},
        )


def absorb(store: Store, database: TuningDatabase) -> ImportSummary:
    """Add the measurements of a foreign tuner, all or none; those that are in the records already stay as they are."""
    before = store.counts().measurements
    with store.transaction():
        for subgraph in database.subgraphs:
            store.workloads.add(subgraph, database.modules[subgraph.workload])
        for sketch in database.sketches:
            store.workloads.add_sketch(sketch)
        for measured in database.measured:
            store.measurements.add(
                Measurement(
                    device_type=store.devices.add(_device_type(measured.target)),
                    compiler=FOREIGN,
                    candidate=measured.candidate,
                    outcome=Outcome(Status.OK, measured.times_us),
                    origin=FOREIGN,
                )
            )
        added = store.counts().measurements - before
    return ImportSummary(added=added, known=len(database.measured) - added)


def _alike(found: Sequence[Measurement]) -> tuple[list[Measurement], int]:
    """Return the measurements of the device type and compiler to export (see `gather`), and the number of others."""
    counts = Counter((m.device_type, m.compiler) for m in found)
    kept = max(sorted(counts), key=lambda key: (key[1] != FOREIGN, counts[key]), default=None)
    alike = [m for m in found if (m.device_type, m.compiler) == kept]
    return alike, len(found) - len(alike)


def _device_type(target: str) -> DeviceType:
    """Return a device type for foreign measurements, of which only the target is known."""
    threads = int(json.loads(target).get("num-cores", 1))
    return DeviceType(target=target, model="unknown", isa=(), threads=threads, protocol=FOREIGN)


class ForeignMeasurement(msgspec.Struct, frozen=True):
    """A candidate, its run times in microseconds, and the canonical target (JSON) it was built for."""

    candidate: Candidate
    times_us: tuple[float, ...]
    target: str


class TuningDatabase(msgspec.Struct, frozen=True):
    """Measured candidates with the workloads and sketches that are needed to replay them.

    `modules` maps workload digests to serialised programs.  `skipped` counts measurements that were left out, by
    reason.
    """

    subgraphs: tuple[Subgraph, ...]
    modules: dict[str, bytes]
    sketches: tuple[Sketch, ...]
    measured: tuple[ForeignMeasurement, ...]
    skipped: dict[str, int] = {}


class Exported(msgspec.Struct, frozen=True):
    """The number of records that were written, and the numbers of those left out, by reason."""

    written: int
    skipped: dict[str, int]


Result = TypeVar("Result")


def export_metaschedule(directory: str | os.PathLike[str], database: TuningDatabase) -> Exported:
    """Write a stock MetaSchedule database; see `kintune.integrations.metaschedule.export_database`."""
    return _in_worker("export", directory, msgspec.msgpack.encode(database), Exported)


def read_metaschedule(directory: str | os.PathLike[str]) -> TuningDatabase:
    """Read a stock MetaSchedule database; see `kintune.integrations.metaschedule.read_database`."""
    return _in_worker("read", directory, b"", TuningDatabase)


def _in_worker(operation: str, directory: str | os.PathLike[str], payload: bytes, result: type[Result]) -> Result:
    """Run `operation` in a process that loads TVM."""
    with interview("kintune.integrations.metaschedule") as worker:
        answer = worker.ask(operation, os.fsencode(directory), payload)
    return msgspec.msgpack.decode(answer, type=result)
