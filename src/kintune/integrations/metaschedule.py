"""The database of stock MetaSchedule: a directory with `database_workload.json` and `database_tuning_record.json`.

Both files hold a JSON document a line: `[hash, module]`, and `[workload, [trace, seconds, target, arguments]]`.
`MetaScheduleApplyDatabase` can use a directory that is written here; one that is read here may come from any stock
tuning run of the same TVM version.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tvm
from tvm.s_tir import meta_schedule as ms

from kintune.compiler.graph.workload import describe, standalone
from kintune.compiler.space.generator import load_intrinsics
from kintune.compiler.space.replay import Replayer, load_workload, save_workload
from kintune.compiler.space.sketches import parse_trace
from kintune.core.candidate import UNTUNED, Candidate, Sketch
from kintune.core.workload import Subgraph
from kintune.errors import BuildError, InputError, TargetError
from kintune.integrations.exchange import Exported, ForeignMeasurement, TuningDatabase
from kintune.runtime.target import capabilities, resolve_target
from kintune.wire import worker_loop as worker

__all__ = ["RECORDS_FILE", "WORKLOADS_FILE", "export_database", "main", "read_database"]

WORKLOADS_FILE = "database_workload.json"
RECORDS_FILE = "database_tuning_record.json"

_FAILED_SECONDS = 1e9  # stock MetaSchedule records a failure as a run of 1e10 seconds


def export_database(directory: str | os.PathLike[str], database: TuningDatabase) -> Exported:
    """Write a stock database into `directory`, which is created if needed; each file appears whole or not at all.

    The untuned program, which has no trace, and candidates that can no longer be replayed are left out and counted.

    Raises:
        InputError: the directory holds a database already or cannot be written.
    """
    directory = Path(directory)
    taken = [name for name in (WORKLOADS_FILE, RECORDS_FILE) if (directory / name).exists()]
    if taken:
        raise InputError(f"{directory}: holds {taken[0]} already; name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kintune-", dir=directory) as scratch:
            exported = _write(Path(scratch), database)
            for name in (WORKLOADS_FILE, RECORDS_FILE):
                os.replace(Path(scratch, name), directory / name)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from error
    return exported


def read_database(directory: str | os.PathLike[str]) -> TuningDatabase:
    """Read a stock database.

    Failed measurements, other targets than CPUs and traces with unknown ways of sampling are skipped and counted, as is
    a last line cut short, which an interrupted tuning run leaves behind.

    Raises:
        InputError: there is no such database, or a line of it is no record.
    """
    directory = Path(directory)
    skipped: Counter[str] = Counter()
    subgraphs: dict[str, Subgraph] = {}
    modules: dict[str, tvm.IRModule] = {}
    sketches: dict[str, Sketch] = {}
    measured: list[ForeignMeasurement] = []
    stored: list[tuple[Any, str]] = []
    for workload in _lines(directory / WORKLOADS_FILE, ms.database.Workload.from_json, skipped):
        subgraph, module = _subgraph(workload.mod)
        subgraphs[subgraph.workload], modules[subgraph.workload] = subgraph, module
        stored.append((workload, subgraph.workload))

    def record_of(line: Any) -> tuple[Any, str]:
        index, content = line
        workload, digest = stored[index]
        return ms.database.TuningRecord.from_json(content, workload), digest

    for record, digest in _lines(directory / RECORDS_FILE, record_of, skipped):
        try:
            target = _target(record.target)
            seconds = _seconds(record.run_secs)
            sketch, decisions = parse_trace(digest, modules[digest], record.trace)
        except (TargetError, NotImplementedError, BuildError) as error:
            skipped[str(error)] += 1
            continue
        sketches[sketch.digest] = sketch
        times = tuple(round(second * 1e6, 9) for second in seconds)
        measured.append(ForeignMeasurement(Candidate(digest, sketch.digest, decisions), times, target))
    return TuningDatabase(
        subgraphs=tuple(subgraphs.values()),
        modules={digest: save_workload(module) for digest, module in modules.items()},
        sketches=tuple(sketches.values()),
        measured=tuple(measured),
        skipped=dict(skipped),
    )


class _Handler:
    """The handler of the worker: stages are of kind "export" or "read", and their context is the directory."""

    def begin(self, kind: str, context: bytes) -> None:
        self._kind, self._directory = kind, os.fsdecode(context)

    def item(self, payload: bytes) -> bytes:
        """Write an encoded `TuningDatabase`, or read one; the answer is an encoded `Exported` or `TuningDatabase`."""
        if self._kind == "export":
            database = msgspec.msgpack.decode(payload, type=TuningDatabase)
            return msgspec.msgpack.encode(export_database(self._directory, database))
        return msgspec.msgpack.encode(read_database(self._directory))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the worker that `kintune.integrations.exchange` starts, which itself must not load the compiler."""
    worker.main("metaschedule", lambda _arguments: (b"", _Handler()), argv)


def _write(directory: Path, database: TuningDatabase) -> Exported:
    load_intrinsics()
    stock = ms.database.JSONDatabase(work_dir=str(directory))
    by_digest = {sketch.digest: sketch for sketch in database.sketches}
    modules = {digest: load_workload(module) for digest, module in database.modules.items()}
    workloads: dict[str, Any] = {}
    replayers: dict[tuple[str, str], Replayer] = {}
    targets: dict[str, tvm.target.Target] = {}
    skipped = Counter(database.skipped)
    written = 0
    for measured in database.measured:
        candidate = measured.candidate
        if candidate.sketch == UNTUNED or not measured.times_us:
            skipped["the untuned program" if candidate.sketch == UNTUNED else "a failed measurement"] += 1
            continue
        module = modules[candidate.workload]
        target = targets.setdefault(measured.target, tvm.target.Target(json.loads(measured.target)))
        key = candidate.workload, measured.target
        if key not in replayers:
            replayers[key] = Replayer(module, target)
        try:
            schedule = replayers[key](by_digest[candidate.sketch], candidate).schedule
        except BuildError as error:
            skipped[str(error).removeprefix(f"{candidate.digest}: ")] += 1
            continue
        if candidate.workload not in workloads:
            workloads[candidate.workload] = stock.commit_workload(module)
        stock.commit_tuning_record(
            ms.database.TuningRecord(
                schedule.trace,
                workloads[candidate.workload],
                [time * 1e-6 for time in measured.times_us],
                target,
                ms.arg_info.ArgInfo.from_entry_func(schedule.mod),
            )
        )
        written += 1
    return Exported(written, dict(skipped))


def _lines(path: Path, parse: Callable[[Any], Any], skipped: Counter[str]) -> Iterator[Any]:
    """Each line's document, parsed; a last line without an end that cannot be parsed is counted as skipped."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; name the directory of a tuning run") from error
    for number, line in enumerate(lines, start=1):
        try:
            yield parse(json.loads(line))
        except Exception as error:  # the compiler raises many types for a document that is no record
            if number == len(lines) and not line.endswith(b"\n"):
                skipped["a last line cut short"] += 1
                return
            raise InputError(f"{path}, line {number}: not a record of this TVM version") from error


def _subgraph(module: tvm.IRModule) -> tuple[Subgraph, tvm.IRModule]:
    """Return a stored workload as a subgraph, whose name is made of the names of its blocks, and its program alone."""
    alone = standalone(module["main"])
    schedule = tvm.s_tir.Schedule(alone, debug_mask=0, error_render_level="none")
    blocks = schedule.get_child_blocks(schedule.get_sblock("root", func_name="main"))
    name = "_".join(schedule.get(block).name_hint.removeprefix("T_") for block in blocks)
    subgraph = describe(name, alone).subgraph(tunable=True)
    return msgspec.structs.replace(subgraph, weight_bytes=0.0, bytes=0.0), alone  # records keep no sizes


def _target(target: tvm.target.Target | None) -> str:
    if target is None:
        raise TargetError("no target noted")
    if not capabilities(target).llvm_kernels:
        raise TargetError(f"target {target.kind.name}")
    return resolve_target(str(target), int(target.attrs.get("num-cores", 1)))


def _seconds(run_secs: Any) -> tuple[float, ...]:
    seconds = tuple(float(getattr(value, "value", value)) for value in run_secs or ())
    if not seconds or max(seconds) >= _FAILED_SECONDS:
        raise BuildError("a failed measurement")
    return seconds


if __name__ == "__main__":
    main()
