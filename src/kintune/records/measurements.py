"""Measurements of candidates."""

from __future__ import annotations

import array
import itertools
import math
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, func, select, update

from kintune.core.candidate import UNTUNED, Candidate, Decision
from kintune.core.outcome import Outcome, Status
from kintune.errors import RecordsError
from kintune.records.database import Clock, Database, insert_or_keep
from kintune.records.integrity import Damage, OnDamage, refuse, row_id, sealed, verified
from kintune.records.schema import measurements

__all__ = ["FailureCount", "Measurement", "MeasurementTally", "Measurements"]

_AT_ONCE = 500  # values in one IN (...): every database takes as many

_decisions = msgspec.msgpack.Decoder(tuple[Decision, ...])
_outcome = msgspec.msgpack.Decoder(Outcome)


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one candidate on one device type (digest) with one compiler version.

    `features` are little-endian float32 values of the version `feature_version`.  `origin` says how the candidate was
    found, and `predicted` is its score by the cost model.  `confirmed` is the outcome of timing it again, which counts
    more.  The store gives `id` and `created` (time of day) when the measurement is added.
    """

    device_type: str
    compiler: str
    candidate: Candidate
    outcome: Outcome
    features: bytes = b""
    feature_version: str = ""
    origin: str = ""
    predicted: float | None = None
    run_id: str | None = None
    confirmed: Outcome | None = None
    id: int = 0
    created: str = ""

    @property
    def believed_us(self) -> float:
        """The median in microseconds, of the confirmed outcome if there is one; infinite when there is no time."""
        return (self.confirmed or self.outcome).median_us


class FailureCount(msgspec.Struct, frozen=True):
    """How many candidates failed with one status and cause."""

    status: Status
    cause: str
    count: int


class MeasurementTally(msgspec.Struct, frozen=True):
    """What is known of a workload on one device type with one compiler: measurements, those ok, the best time in us."""

    workload: str
    device_type: str
    compiler: str
    measured: int
    ok: int
    best_us: float | None


class Measurements:
    """Measurements, one for each (device type, compiler, workload, candidate)."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, measurement: Measurement) -> int:
        """Stores a measurement whose device type, workload and sketch were added before, and returns its id.

        When the same candidate was measured before, the first measurement stays, and its id is returned.

        Raises:
            RecordsError: the device type, workload, sketch or run is not in the records.
        """
        with self._database.transaction() as connection:
            self.add_all([measurement])
            of = measurement.candidate
            key = _key(measurement.device_type, measurement.compiler, of.workload, of.digest)
            return int(connection.execute(select(measurements.c.id).where(key)).scalar_one())

    def add_all(self, added: Collection[Measurement]) -> None:
        """Stores several measurements, each as `add` does, all or none.

        Raises:
            RecordsError: as for `add`.
        """
        with self._database.transaction() as connection:
            rows = [_row(msgspec.structs.replace(m, created=m.created or self._clock())) for m in added]
            if rows:
                insert_or_keep(connection, measurements, *rows)

    def confirm(self, device_type: str, compiler: str, candidate: Candidate, outcome: Outcome) -> None:
        """Store the outcome of timing the candidate again, in place of an earlier such outcome.

        Raises:
            RecordsError: it was never measured.
            DamagedRecord: its row changed.
        """
        with self._database.transaction() as connection:
            query = select(measurements).where(_key(device_type, compiler, candidate.workload, candidate.digest))
            for row in verified(measurements, connection.execute(query)):
                measured = msgspec.structs.replace(_measurement(row), confirmed=outcome)
                connection.execute(
                    update(measurements).where(measurements.c.id == measured.id).values(**_row(measured))
                )
                return
        raise RecordsError(f"records: candidate {candidate.digest} of workload {candidate.workload} was never measured")

    def rename(self, candidates: Mapping[int, Candidate]) -> int:
        """Let measurements (ids) name these candidates, whose sketches were added before; return how many remain.

        A measurement whose candidate was measured already under the same conditions is removed instead.
        """
        kept = 0
        with self._database.transaction() as connection:
            for measured in self.named(candidates):
                candidate = candidates[measured.id]
                this = measurements.c.id == measured.id
                if self.of(measured.device_type, measured.compiler, candidate.workload, candidate.digest):
                    connection.execute(delete(measurements).where(this))
                else:
                    row = _row(msgspec.structs.replace(measured, candidate=candidate))
                    connection.execute(update(measurements).where(this).values(**row))
                    kept += 1
        return kept

    def remove(self, ids: Iterable[int]) -> None:
        """Remove measurements."""
        with self._database.transaction() as connection:
            for number in ids:
                connection.execute(delete(measurements).where(measurements.c.id == number))

    def of(self, device_type: str, compiler: str, workload: str, candidate: str) -> Measurement | None:
        """The measurement of the candidate with this digest; None when it was never measured.

        Raises:
            DamagedRecord: its row changed.
        """
        with self._database.snapshot() as connection:
            found = _select(connection, [_key(device_type, compiler, workload, candidate)], refuse)
            return next(iter(found), None)

    def find(
        self,
        *,
        workloads: Iterable[str] | None = None,
        device_type: str | None = None,
        compiler: str | None = None,
        run_id: str | None = None,
        on_damage: OnDamage = refuse,
    ) -> list[Measurement]:
        """The measurements that match all that is given, in the order in which they were added.

        A damaged one is passed to `on_damage`, which raises `DamagedRecord` by default, and left out.
        """
        given = _where(device_type, compiler, run_id)
        found: list[Measurement] = []
        with self._database.snapshot() as connection:
            for part in _parts(workloads):
                found += _select(connection, [*given, *part], on_damage)
        return sorted(found, key=lambda measurement: measurement.id)

    def named(self, ids: Iterable[int], on_damage: OnDamage = refuse) -> list[Measurement]:
        """The measurements with these ids, in the order in which they were added; unknown ids are ignored."""
        distinct = sorted(set(ids))
        found: list[Measurement] = []
        with self._database.snapshot() as connection:
            for start in range(0, len(distinct), _AT_ONCE):
                found += _select(connection, [measurements.c.id.in_(distinct[start : start + _AT_ONCE])], on_damage)
        return sorted(found, key=lambda measurement: measurement.id)

    def best(self, workload: str, device_type: str, compiler: str, on_damage: OnDamage = refuse) -> Measurement | None:
        """The measurement of the workload with the smallest `believed_us`, or None when no candidate ran.

        Of equal ones, it is the one that was added first.
        """
        found = self.fastest(workload, device_type, compiler, 1, on_damage)
        return found[0] if found else None

    def fastest(
        self,
        workload: str,
        device_type: str,
        compiler: str,
        count: int,
        on_damage: OnDamage = refuse,
        *,
        hidden: Collection[str] = (),
    ) -> list[Measurement]:
        """The `count` measurements of the workload with the smallest `believed_us`, the fastest first.

        Measurements of the runs `hidden` (ids) are left out.
        """
        where = [*_where(device_type, compiler, None), measurements.c.workload == workload]
        query = select(measurements).where(*where, measurements.c.believed_us.is_not(None))
        fastest_first = query.order_by(measurements.c.believed_us, measurements.c.id)
        with self._database.snapshot() as connection:
            rows = verified(measurements, connection.execute(fastest_first), on_damage)
            seen = (row for row in rows if row["run_id"] not in hidden)
            return [_measurement(row) for row in itertools.islice(seen, count)]

    def failures(self, *, workloads: Iterable[str] | None = None, run_id: str | None = None) -> list[FailureCount]:
        """Counts failures by status and cause, the most frequent first, without verifying checksums."""
        counts: dict[tuple[str, str], int] = {}
        with self._database.snapshot() as connection:
            for part in _parts(workloads):
                query = (
                    select(measurements.c.status, measurements.c.cause, func.count())
                    .where(*_where(None, None, run_id), *part, measurements.c.status != Status.OK.value)
                    .group_by(measurements.c.status, measurements.c.cause)
                )
                for status, cause, count in connection.execute(query):
                    counts[status, cause] = counts.get((status, cause), 0) + count
        by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [FailureCount(Status(status), cause, count) for (status, cause), count in by_count]

    def tallies(self) -> list[MeasurementTally]:
        """Counts measurements by workload, device type and compiler, without verifying checksums."""
        c = measurements.c
        query = (
            select(
                c.workload,
                c.device_type,
                c.compiler,
                func.count().label("measured"),
                func.count().filter(c.status == Status.OK.value).label("ok"),
                func.min(c.believed_us).label("best_us"),
            )
            .group_by(c.workload, c.device_type, c.compiler)
            .order_by(c.workload, c.device_type, c.compiler)
        )
        with self._database.snapshot() as connection:
            return [MeasurementTally(**row) for row in connection.execute(query).mappings()]

    def made_here(self) -> int:
        """Counts the measurements of runs of these records; imported ones are left out."""
        query = select(func.count()).where(measurements.c.run_id.is_not(None))
        with self._database.snapshot() as connection:
            return int(connection.execute(query).scalar_one())

    def conditions(self) -> list[tuple[str, str, str]]:
        """The different (device type, compiler, feature version) of measurements with features, the latest last."""
        c = measurements.c
        by = (c.device_type, c.compiler, c.feature_version)
        query = select(*by).where(c.feature_version != "").group_by(*by).order_by(func.max(c.id))
        with self._database.snapshot() as connection:
            return [(device_type, compiler, version) for device_type, compiler, version in connection.execute(query)]

    def width(self, feature_version: str) -> int | None:
        """The number of features that most measurements of this version have, without verifying checksums.

        None when no measurement has any.
        """
        size = func.length(measurements.c.features)
        query = select(size).where(measurements.c.feature_version == feature_version, size > 0).group_by(size)
        with self._database.snapshot() as connection:
            found = connection.execute(query.order_by(func.count().desc(), size).limit(1)).scalar()
        return None if found is None else int(found) // 4


def _key(device_type: str, compiler: str, workload: str, candidate: str) -> ColumnElement[bool]:
    c = measurements.c
    return (
        (c.device_type == device_type)
        & (c.compiler == compiler)
        & (c.workload == workload)
        & (c.candidate == candidate)
    )


def _where(device_type: str | None, compiler: str | None, run_id: str | None) -> list[ColumnElement[bool]]:
    c = measurements.c
    given = ((c.device_type, device_type), (c.compiler, compiler), (c.run_id, run_id))
    return [column == value for column, value in given if value is not None]


def _parts(workloads: Iterable[str] | None) -> Iterable[list[ColumnElement[bool]]]:
    """Conditions that select the workloads, with at most `_AT_ONCE` workloads each; None gives one empty condition."""
    if workloads is None:
        yield []
        return
    distinct = sorted(set(workloads))
    for start in range(0, len(distinct), _AT_ONCE):
        yield [measurements.c.workload.in_(distinct[start : start + _AT_ONCE])]


def _select(connection: Connection, where: list[ColumnElement[bool]], on_damage: OnDamage) -> Iterable[Measurement]:
    rows = connection.execute(select(measurements).where(*where))
    return (_measurement(row) for row in verified(measurements, rows, on_damage))


def _row(measurement: Measurement) -> dict[str, object]:
    candidate, outcome, confirmed = measurement.candidate, measurement.outcome, measurement.confirmed
    predicted, believed_us = measurement.predicted, measurement.believed_us
    return sealed(
        measurements,
        device_type=measurement.device_type,
        compiler=measurement.compiler,
        workload=candidate.workload,
        candidate=candidate.digest,
        sketch=None if candidate.sketch == UNTUNED else candidate.sketch,
        decisions=msgspec.msgpack.encode(candidate.decisions),
        status=outcome.status.value,
        times_us=_to_bytes(outcome.times_us),
        cause=outcome.cause,
        confirmed=None if confirmed is None else msgspec.msgpack.encode(confirmed),
        believed_us=believed_us if math.isfinite(believed_us) else None,
        features=measurement.features,
        feature_version=measurement.feature_version,
        origin=measurement.origin,
        predicted=predicted if predicted is not None and math.isfinite(predicted) else None,
        run_id=measurement.run_id,
        created=measurement.created,
    )


def _measurement(row: Mapping[str, Any]) -> Measurement:
    candidate = Candidate(row["workload"], row["sketch"] or UNTUNED, _decisions.decode(row["decisions"]))
    if candidate.digest != row["candidate"]:
        raise Damage(measurements.name, row_id(measurements, row), "its candidate does not match its digest").error()
    return Measurement(
        device_type=row["device_type"],
        compiler=row["compiler"],
        candidate=candidate,
        outcome=Outcome(Status(row["status"]), _to_floats(row["times_us"]), row["cause"]),
        features=row["features"],
        feature_version=row["feature_version"],
        origin=row["origin"],
        predicted=row["predicted"],
        run_id=row["run_id"],
        confirmed=None if row["confirmed"] is None else _outcome.decode(row["confirmed"]),
        id=row["id"],
        created=row["created"],
    )


def _to_bytes(times_us: tuple[float, ...]) -> bytes:
    """Encode times as little-endian 64-bit floats."""
    values = array.array("d", times_us)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _to_floats(data: bytes) -> tuple[float, ...]:
    values = array.array("d", data)
    if sys.byteorder == "big":
        values.byteswap()
    return tuple(values)
