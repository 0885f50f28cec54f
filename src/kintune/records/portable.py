"""Export and import of records as one file that any Kintune can read: the format `kintune-records-v2`.

A gzip-compressed file of JSON lines.  Each line is an object with `record` and `seal`, the digest of the record's
bytes.  The first record is a `header`, the last an `end` that counts the others; between them each `device_type`,
`workload` (with its serialised program) and `sketch` comes before the `measurement`s that name it.  Bytes are base64.
The same records give the same file.  An import checks the relations between records, see `ImportChecks`.
"""

from __future__ import annotations

import gzip
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED, Axis, Decision, Location, Sketch, answers, digest_of
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome
from kintune.core.workload import Subgraph
from kintune.errors import RecordsError, StorageError
from kintune.files import followed, move_into_place
from kintune.records.measurements import Measurement
from kintune.records.runs import RunState
from kintune.records.store import Store
from kintune.search.sketch_program import has_places
from kintune.wire.channel import UNREADABLE

__all__ = [
    "PORTABLE_FORMAT",
    "Content",
    "DeviceTypeContent",
    "ImportChecks",
    "ImportSummary",
    "MeasurementContent",
    "SketchContent",
    "WorkloadContent",
    "add_contents",
    "contents_of",
    "export_records",
    "exported_contents",
    "import_records",
]


PORTABLE_FORMAT = "kintune-records-v2"

_READABLE = ("kintune-records-v1", PORTABLE_FORMAT)  # the first one has no sketches with named decisions

_LONGEST_LINE = 256 << 20  # bytes; a longer line is no record of ours
_AT_ONCE = 1000  # measurements in one insert: one by one takes several times as long, while other writers wait
_DIGEST = re.compile(r"[0-9a-f]{32}")


class _Header(msgspec.Struct, frozen=True, tag="header"):
    format: str


class DeviceTypeContent(msgspec.Struct, frozen=True, tag="device_type"):
    """A type of device that measurements name by its digest."""

    device_type: DeviceType


class WorkloadContent(msgspec.Struct, frozen=True, tag="workload"):
    """A workload with its serialised program `module`."""

    digest: str
    name: str
    operator: str
    signature: str
    flops: float
    module: bytes


class SketchContent(msgspec.Struct, frozen=True, tag="sketch"):
    """A sketch of a workload that came before."""

    sketch: Sketch


class MeasurementContent(msgspec.Struct, frozen=True, tag="measurement"):
    """A measurement without its run, which is not exported."""

    measurement: Measurement


class _End(msgspec.Struct, frozen=True, tag="end"):
    records: int


Content: TypeAlias = DeviceTypeContent | WorkloadContent | SketchContent | MeasurementContent
"""A record of a file; each comes after those that it names."""


class _Line(msgspec.Struct, frozen=True):
    seal: str
    record: msgspec.Raw


_line = msgspec.json.Decoder(_Line)

_record: msgspec.json.Decoder[_Header | Content | _End] = msgspec.json.Decoder(_Header | Content | _End)


class ImportSummary(msgspec.Struct, frozen=True):
    """The result of an import: how many measurements are new, and how many were in the records already.

    `earlier` of all of them are of earlier programs, whose decisions were places in lists: no program is built from
    these until they are upgraded (`kintune.transfer.upgrade`).
    """

    added: int
    known: int
    earlier: int = 0


def export_records(
    store: Store, path: str | Path, *, workloads: Iterable[str] | None = None, run_id: str | None = None
) -> int:
    """Write the measurements of some workloads, of a run, or all, with the rows they refer to; returns how many.

    Failures of a run that failed as a whole are left out: they say nothing of their candidates, and an importer could
    not tell, since runs are not exported.  The file appears when it is complete.

    Raises:
        DamagedRecord: a record is damaged.
        StorageError: the file cannot be written.
    """
    target = followed(Path(path))
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with (
            store.snapshot(),
            partial.open("wb") as plain,
            gzip.GzipFile("", "wb", compresslevel=6, fileobj=plain, mtime=0) as file,
        ):
            count = _write(file, contents_of(store, workloads=workloads, run_id=run_id))
        move_into_place(partial, target)
    except OSError as error:
        raise StorageError(f"{target}: cannot be written ({error.strerror or error})") from error
    finally:
        partial.unlink(missing_ok=True)
    return count


def contents_of(
    store: Store, *, workloads: Iterable[str] | None = None, run_id: str | None = None
) -> Iterator[Content]:
    """Yields the measurements that `export_records` writes, each after what it names.

    Raises:
        DamagedRecord: a record is damaged.
    """
    failed = {run.run_id for run in store.runs.list(on_damage=_leave_out) if run.state is RunState.FAILED}
    found = store.measurements.find(workloads=workloads, run_id=run_id)
    measurements = [m for m in found if m.run_id not in failed or (m.confirmed or m.outcome).ok]
    for device_type in sorted({measurement.device_type for measurement in measurements}):
        yield DeviceTypeContent(store.devices.get(device_type))
    for digest in sorted({measurement.candidate.workload for measurement in measurements}):
        known = store.workloads.get(digest)
        module = store.workloads.module(digest)
        yield WorkloadContent(digest, known.name, known.operator, known.signature, known.flops, module)
        for sketch in store.workloads.sketches([digest]):
            yield SketchContent(sketch)
    for measurement in measurements:
        yield MeasurementContent(msgspec.structs.replace(measurement, run_id=None, id=0))


def _write(file: gzip.GzipFile, contents: Iterable[Content]) -> int:
    """Returns how many measurements were written."""
    count = measurements = 0
    file.write(_encoded(_Header(PORTABLE_FORMAT)))
    for content in contents:
        file.write(_encoded(content))
        count += 1
        measurements += isinstance(content, MeasurementContent)
    file.write(_encoded(_End(count)))
    return measurements


def _encoded(record: _Header | Content | _End) -> bytes:
    raw = msgspec.json.encode(record)
    return msgspec.json.encode(_Line(digest_of(raw), msgspec.Raw(raw))) + b"\n"


def import_records(store: Store, path: str | Path) -> ImportSummary:
    """Add the content of an exported file; records that are known already stay as they are.

    Raises:
        RecordsError: a record is damaged, missing or invalid; the message names it, and nothing of the file is kept.
    """
    try:
        return add_contents(store, exported_contents(path, store.measurements.width))
    except OverflowError as error:  # while a record is stored
        raise RecordsError(f"{path}: a record has a number of more than 64 bits; nothing was imported") from error


def exported_contents(path: str | Path, width_of: Callable[[str], int | None] = lambda _: None) -> Iterator[Content]:
    """Yields the content of an exported file, checked; `width_of` is that of `ImportChecks`.

    Raises:
        RecordsError: a record is damaged, missing or invalid; the message names it.
    """
    source = Path(path)
    try:
        with gzip.open(source, "rb") as file:
            yield from _read(source, file, ImportChecks(width_of))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise RecordsError(f"{source}: damaged or not exported by Kintune ({error}); export it again") from error
    except OSError as error:
        raise RecordsError(f"{source}: cannot be read ({error.strerror or error})") from error


def add_contents(store: Store, contents: Iterable[Content]) -> ImportSummary:
    """Adds records, each of which comes after those that it names; what is known already stays as it is.

    Raises:
        OverflowError: a record has a number of more than 64 bits; nothing is kept.
        RecordsError: a record names one that is missing; nothing is kept.
    """
    read = earlier = 0
    with_places: set[str] = set()
    with store.transaction():
        before = store.counts().measurements
        measured: list[Measurement] = []
        for content in contents:
            if isinstance(content, MeasurementContent):
                read += 1
                earlier += content.measurement.candidate.sketch in with_places
                measured.append(msgspec.structs.replace(content.measurement, run_id=None))
            else:
                _add(store, content)
                if isinstance(content, SketchContent) and has_places(content.sketch):
                    with_places.add(content.sketch.digest)
            if len(measured) == _AT_ONCE:
                store.measurements.add_all(measured)
                measured.clear()
        store.measurements.add_all(measured)
        added = store.counts().measurements - before
    return ImportSummary(added, read - added, earlier)


def _read(source: Path, file: gzip.GzipFile, checks: ImportChecks) -> Iterator[Content]:
    """The records between header and end, each checked."""
    number = 0
    ended = False
    for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
        where = f"{source}: record {number}"
        record = _decoded(line, where)
        if ended or isinstance(record, _Header) != (number == 0):
            raise RecordsError(f"{where} is out of place; the file was changed, export it again")
        match record:
            case _Header(format=written) if written not in _READABLE:
                raise RecordsError(f"{source}: its format is {written}, this Kintune reads {PORTABLE_FORMAT}")
            case _Header():
                pass
            case _End(records=count):
                ended = True
                if count != number - 1:
                    raise RecordsError(f"{source}: {number - 1} of {count} records are left; export it again")
            case _:
                problem = checks.content(record)
                if problem:
                    raise RecordsError(f"{where} makes no sense: {problem}; nothing was imported")
                yield record
        number += 1
    if not ended:
        raise RecordsError(f"{source}: cut short after {number} records; export it again")


def _decoded(line: bytes, where: str) -> _Header | Content | _End:
    try:
        sealed = _line.decode(line)
        if sealed.seal != digest_of(bytes(sealed.record)):
            raise RecordsError(f"{where} is damaged: it does not match its seal; nothing was imported")
        return _record.decode(sealed.record)
    except UnicodeDecodeError as error:
        raise RecordsError(f"{where} is damaged: it is not text; nothing was imported") from error
    except UNREADABLE as error:
        raise RecordsError(f"{where} is not one of {PORTABLE_FORMAT}: {error}; nothing was imported") from error


def _add(store: Store, content: DeviceTypeContent | WorkloadContent | SketchContent) -> None:
    match content:
        case DeviceTypeContent(device_type=device_type):
            store.devices.add(device_type)
        case WorkloadContent(digest, name, operator, signature, flops, module):
            subgraph = Subgraph(name, digest, 1, flops, operator, signature, tunable=True)
            store.workloads.add(subgraph, module)
        case SketchContent(sketch=sketch):
            store.workloads.add_sketch(sketch)


def _leave_out(damage: object) -> None:
    """Skips a damaged run, which is not known to have failed."""
    del damage


class ImportChecks:
    """Checks records of a file one after the other; each method returns what is wrong with one, or ""."""

    def __init__(self, width_of: Callable[[str], int | None] = lambda _: None) -> None:
        """`width_of` returns the number of features of a version, or None when it is not known."""
        self._width_of = width_of
        self._widths: dict[str, int] = {}
        self._device_types: set[str] = set()
        self._workloads: set[str] = set()
        self._sketches: dict[str, Sketch] = {}

    def content(self, content: Content) -> str:
        """Checks a record of any kind."""
        match content:
            case DeviceTypeContent(device_type=device_type):
                return self.device_type(device_type)
            case WorkloadContent(digest=digest):
                return self.workload(digest)
            case SketchContent(sketch=sketch):
                return self.sketch(sketch)
            case MeasurementContent(measurement=measurement):
                return self.measurement(measurement)

    def device_type(self, device_type: DeviceType) -> str:
        """Accepts any device type; measurements may name it afterwards."""
        self._device_types.add(device_type.digest)
        return ""

    def workload(self, digest: str) -> str:
        """Checks a workload; later records may name it."""
        self._workloads.add(digest)
        return "" if _DIGEST.fullmatch(digest) else f"{digest!r} is no digest"

    def sketch(self, sketch: Sketch) -> str:
        """Checks a sketch of a known workload; measurements may name it afterwards."""
        self._sketches[sketch.digest] = sketch
        if not _DIGEST.fullmatch(sketch.digest):
            return f"{sketch.digest!r} is no digest"
        return "" if sketch.workload in self._workloads else f"its workload {sketch.workload} is missing"

    def measurement(self, measurement: Measurement) -> str:
        """Checks that a measurement names known records, fits its sketch's axes, and has valid times and features."""
        candidate = measurement.candidate
        if measurement.device_type not in self._device_types:
            return f"its device type {measurement.device_type} is missing"
        if candidate.workload not in self._workloads:
            return f"its workload {candidate.workload} is missing"
        if not measurement.compiler:
            return "it names no compiler"
        axes: tuple[Axis, ...] = ()
        if candidate.sketch != UNTUNED:
            sketch = self._sketches.get(candidate.sketch)
            if sketch is None or sketch.workload != candidate.workload:
                return f"its sketch {candidate.sketch} is missing"
            axes = sketch.axes
        if len(axes) != len(candidate.decisions):
            return f"it has {len(candidate.decisions)} decisions for {len(axes)} axes"
        for number, (axis, decision) in enumerate(zip(axes, candidate.decisions, strict=True)):
            if not _answers(axis, decision):
                return f"its decision {number} does not answer its axis"
        outcomes = (measurement.outcome, measurement.confirmed)
        wrong = next((problem for outcome in outcomes if outcome and (problem := _outcome_problem(outcome))), "")
        return wrong or self._features(measurement.features, measurement.feature_version)

    def _features(self, features: bytes, version: str) -> str:
        """Checks that features of one version have the same width, as the rows that models are trained on."""
        if not features:
            return ""
        if not version or len(features) % 4:
            return f"its {len(features)} bytes of features are no 32-bit floats of a named version"
        if not np.isfinite(np.frombuffer(features, dtype="<f4")).all():
            return "its features are not all finite"
        width = len(features) // 4
        if version not in self._widths:  # looked up once, since that reads all measurements of the version
            self._widths[version] = self._width_of(version) or width
        expected = self._widths[version]
        return "" if width == expected else f"it has {width} features, others of version {version!r} have {expected}"


def _answers(axis: Axis, decision: Decision) -> bool:
    """Whether the decision answers the axis; an exporter may have known more locations."""
    if isinstance(axis, Location):
        return len(decision) == 1 and decision[0] >= -2  # inlined
    return answers(axis, decision)


def _outcome_problem(outcome: Outcome) -> str:
    if outcome.ok != bool(outcome.times_us):
        return f"it is {outcome.status.value} with {len(outcome.times_us)} times"
    wrong = [time for time in outcome.times_us if not (math.isfinite(time) and time > 0)]
    return f"{wrong[0]} us is no time" if wrong else ""
