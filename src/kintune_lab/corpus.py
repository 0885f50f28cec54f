"""Measurements of many runs as training data: a Parquet file a CPU, with each measurement once.

A row is a measurement with all that it names: the type of device, the workload with its program, and the sketch.
Columns whose values repeat are dictionaries, so a program is stored once a file.  `decisions` answer `sketch.axes` in
their order; where an axis has names, a decision is its row of values.  Features are float32.  `run` names what measured
the row first.  Sketches that nothing was measured of are left out.  The same rows give the same file.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.measurement_protocol import DeviceType
from kintune.errors import EnvironmentProblem, RecordsError, StorageError
from kintune.files import move_into_place
from kintune.records import Measurement
from kintune.records.portable import (
    Content,
    DeviceTypeContent,
    ImportChecks,
    MeasurementContent,
    SketchContent,
    WorkloadContent,
)
from kintune_lab.comparison.records import cpu_name

__all__ = ["SUFFIX", "add_to_corpus", "read_corpus"]

SUFFIX = ".parquet"

_LEVEL = 19  # of zstd
_OUTCOME = {"status": "string", "times_us": ["float64"], "cause": "string", "repeated": "int32"}
_COLUMNS: dict[str, Any] = {
    "run": "string",
    "device_type": "dictionary",  # as JSON
    "workload": {"digest": "string", "name": "string", "operator": "string", "signature": "string", "flops": "float64"},
    "module": "dictionary",
    "sketch": "dictionary",  # as JSON; null of an untuned program
    "compiler": "string",
    "decisions": [["int64"]],
    "outcome": _OUTCOME,
    "confirmed": _OUTCOME,
    "features": ["float32"],
    "feature_version": "string",
    "origin": "string",
    "predicted": "float64",
    "created": "string",
}
"""The columns with their types: [x] is a list of x; the values of a dictionary are bytes, each of them there once."""
_REPEATED = [name for name, type_ in _COLUMNS.items() if type_ in ("string", "dictionary") and name != "created"]
_REPEATED += [f"workload.{name}" for name in ("digest", "name", "operator", "signature")]
_REPEATED += [f"{outcome}.{name}" for outcome in ("outcome", "confirmed") for name in ("status", "cause")]


def add_to_corpus(folder: Path, run: str, contents: Iterable[Content]) -> dict[str, int]:
    """Add measurements to the files in `folder`; returns how many were new in each file that changed, by its name.

    `contents` are records as `kintune.records.portable` reads or makes them.  Measurements of the same candidate, type
    of device and compiler as one in the file are left out.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
        RecordsError: a file of the corpus is damaged.
        StorageError: a file cannot be written.
    """
    added: dict[str, dict[_Key, _Row]] = {}
    named: dict[tuple[type, str], Any] = {}
    for content in contents:
        match content:
            case DeviceTypeContent(device_type=device):
                named[DeviceType, device.digest] = device
            case WorkloadContent(digest=digest):
                named[WorkloadContent, digest] = content
            case SketchContent(sketch=sketch):
                named[Sketch, sketch.digest] = sketch
            case MeasurementContent(measurement=measured):
                device = named[DeviceType, measured.device_type]
                of = measured.candidate
                row = _Row(run, device, named[WorkloadContent, of.workload], named.get((Sketch, of.sketch)), measured)
                added.setdefault(f"{cpu_name(device)}{SUFFIX}", {})[row.key] = row
    counts = {}
    for name, rows in sorted(added.items()):
        path = folder / name
        known = {row.key: row for row in _rows(path)} if path.exists() else {}
        new = {key: row for key, row in rows.items() if key not in known}
        if new:
            _write(path, sorted([*known.values(), *new.values()], key=lambda row: row.order))
            counts[name] = len(new)
    return counts


def read_corpus(path: Path, *, run: str | None = None) -> Iterator[Content]:
    """Yields the measurements in a file, or those that `run` added, each after what it names.

    A sketch is named again where its axes have other values: lists of earlier programs grew.

    Raises:
        EnvironmentProblem: pyarrow is not installed.
        RecordsError: the file cannot be read, is no corpus, or a record in it is invalid.
    """
    checks = ImportChecks()
    seen: dict[tuple[type, str], Content] = {}
    for number, row in enumerate(_rows(path)):
        if run is not None and row.run != run:
            continue
        for content, digest in row.contents():
            if seen.get((type(content), digest)) == content:
                continue
            if problem := checks.content(content):
                raise RecordsError(f"{path}: row {number} makes no sense: {problem}")
            if not isinstance(content, MeasurementContent):
                seen[type(content), digest] = content
            yield content


_Key = tuple[str, str, str]


class _Row(msgspec.Struct, frozen=True):
    """A measurement with what it names."""

    run: str
    device: DeviceType
    workload: WorkloadContent
    sketch: Sketch | None
    measured: Measurement

    @property
    def key(self) -> _Key:
        return self.device.digest, self.measured.compiler, self.measured.candidate.digest

    @property
    def order(self) -> tuple[Any, ...]:
        """Rows of like programs beside each other, so that what they share is compressed."""
        of, measured = self.workload, self.measured
        return of.operator, of.signature, of.digest, measured.candidate.sketch, measured.candidate.decisions, self.key

    def contents(self) -> Iterator[tuple[Content, str]]:
        """The records of the row with their digests, each after what it names."""
        yield DeviceTypeContent(self.device), self.device.digest
        yield self.workload, self.workload.digest
        if self.sketch is not None:
            yield SketchContent(self.sketch), self.sketch.digest
        yield MeasurementContent(self.measured), self.measured.candidate.digest


def _write(path: Path, rows: Sequence[_Row]) -> None:
    pa, parquet = _arrow()
    records = [_record(row) for row in rows]
    columns = {name: [record[name] for record in records] for name in _COLUMNS}
    arrays = {name: _array(pa, type_, columns[name]) for name, type_ in _COLUMNS.items()}
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(
            pa.table(arrays),
            partial,
            row_group_size=len(rows),
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=_REPEATED,
            dictionary_pagesize_limit=1 << 30,  # all values of a column are in one dictionary
            column_encoding={"features.list.element": "BYTE_STREAM_SPLIT"},
            write_statistics=False,
        )
        move_into_place(partial, path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        partial.unlink(missing_ok=True)


def _record(row: _Row) -> dict[str, Any]:
    """The row as a value a column."""
    measured, of = row.measured, row.workload
    return {
        **{name: getattr(measured, name) for name in _COLUMNS if hasattr(measured, name)},
        "run": row.run,
        "device_type": msgspec.json.encode(row.device),
        "workload": {name: getattr(of, name) for name in _COLUMNS["workload"]},
        "module": of.module,
        "sketch": msgspec.json.encode(row.sketch) if row.sketch else None,
        "decisions": measured.candidate.decisions,
        "outcome": msgspec.to_builtins(measured.outcome),
        "confirmed": msgspec.to_builtins(measured.confirmed),
        "features": np.frombuffer(measured.features, "<f4"),
    }


def _rows(path: Path) -> Iterator[_Row]:
    """The rows of a file, whose records are not checked."""
    pa, parquet = _arrow()
    dictionaries = [name for name, type_ in _COLUMNS.items() if type_ == "dictionary"]
    try:
        table = parquet.read_table(path, read_dictionary=dictionaries)
        columns = {name: _values(table[name].combine_chunks()) for name in _COLUMNS}
        device_type: Callable[[bytes], DeviceType] = cache(msgspec.json.Decoder(DeviceType).decode)
        sketch: Callable[[bytes], Sketch] = cache(msgspec.json.Decoder(Sketch).decode)
        for values in zip(*columns.values(), strict=True):
            of = dict(zip(columns, values, strict=True))
            device, named = device_type(of["device_type"]), sketch(of["sketch"]) if of["sketch"] else None
            workload = WorkloadContent(**of["workload"], module=of["module"])
            decisions = tuple(tuple(decision) for decision in of["decisions"])
            candidate = Candidate(workload.digest, named.digest if named else UNTUNED, decisions)
            found = {**of, "device_type": device.digest, "candidate": candidate, "features": of["features"].tobytes()}
            measured = msgspec.convert(
                {name: found[name] for name in Measurement.__struct_fields__ if name in found}, Measurement
            )
            yield _Row(of["run"], device, workload, named, measured)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path}: damaged, or no file of measurements ({error})") from error


def _array(pa: Any, type_: Any, values: list[Any]) -> Any:
    """A column of Arrow."""
    if type_ == "dictionary":
        places = {
            value: place for place, value in enumerate(dict.fromkeys(each for each in values if each is not None))
        }
        indices = pa.array([places.get(value) for value in values], pa.int32())
        return pa.DictionaryArray.from_arrays(indices, pa.array(list(places), pa.binary()))
    if values and isinstance(values[0], np.ndarray):
        ends = np.cumsum([0, *map(len, values)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(np.concatenate(values)))
    return pa.array(values, _type(pa, type_))


def _type(pa: Any, type_: Any) -> Any:
    match type_:
        case [item]:
            return pa.list_(_type(pa, item))
        case dict():
            return pa.struct([(name, _type(pa, item)) for name, item in type_.items()])
        case _:
            return getattr(pa, type_)()


def _values(array: Any) -> list[Any]:
    """The values of a column; those of a dictionary are the same objects."""
    if hasattr(array, "dictionary"):
        values = array.dictionary.to_pylist()
        return [None if index is None else values[index] for index in array.indices.to_pylist()]
    if str(array.type.value_type if hasattr(array.type, "value_type") else "") == "float":
        ends, values = array.offsets.to_numpy(), array.values.to_numpy()
        return [values[start:end] for start, end in itertools.pairwise(ends)]
    return list(array.to_pylist())


def _arrow() -> tuple[Any, Any]:
    """Arrow, and its Parquet."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise EnvironmentProblem('files of measurements need pyarrow: pip install "kintune[bench]"') from error
    return pyarrow, parquet
