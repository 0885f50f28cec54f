import json
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kintune.core.candidate import Candidate
from kintune.core.workload import Subgraph
from kintune.errors import EngineError, InputError
from kintune.integrations.exchange import (
    Exported,
    ForeignMeasurement,
    TuningDatabase,
    export_metaschedule,
    read_metaschedule,
)

pytestmark = pytest.mark.tvm

RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"


class Tuned(NamedTuple):
    """A matrix product, its target, and two measured candidates of each of its sketches; the last is the fastest."""

    module: Any
    target: Any
    database: TuningDatabase


def export(directory: Path, database: TuningDatabase) -> Exported:
    from kintune.integrations.metaschedule import export_database

    return export_database(directory, database)


def read(directory: Path) -> TuningDatabase:
    from kintune.integrations.metaschedule import read_database

    return read_database(directory)


@pytest.fixture(scope="module")
def tuned() -> Tuned:
    import tvm
    from tvm import te, topi

    from kintune.compiler.graph.workload import describe
    from kintune.compiler.space.generator import load_intrinsics
    from kintune.compiler.space.replay import Replayer, save_workload
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.runtime.target import resolve_target
    from kintune.search.processor import Processor
    from kintune.search.rules import rule_candidates

    load_intrinsics()
    a, b = te.placeholder((16, 64), name="a"), te.placeholder((64, 32), name="b")
    function = te.create_prim_func([a, b, topi.nn.relu(topi.nn.matmul(a, b))])
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    canonical = resolve_target("native", 2)
    target = tvm.target.Target(json.loads(canonical))
    workload = describe("matmul_NN_compute", module, 1)
    sketches = generate_sketches(workload.digest, module, target)
    replay = Replayer(module, target)
    by_digest = {sketch.digest: sketch for sketch in sketches}
    candidates = [
        replay(by_digest[c.sketch], c).candidate for s in sketches for c in rule_candidates([s], Processor(), 2)
    ]
    times = [(100.0 - i, 101.0 - i) for i in range(len(candidates))]
    subgraph = Subgraph(
        workload.name, workload.digest, 1, workload.flops, workload.operator, workload.signature, tunable=True
    )
    database = TuningDatabase(
        subgraphs=(subgraph,),
        modules={workload.digest: save_workload(module)},
        sketches=sketches,
        measured=tuple(ForeignMeasurement(c, t, canonical) for c, t in zip(candidates, times, strict=True)),
    )
    return Tuned(module, target, database)


def test_what_is_exported_is_read_again(tuned: Tuned, tmp_path: Path) -> None:
    exported = export(tmp_path / "stock", tuned.database)
    assert exported.written == len(tuned.database.measured)
    assert exported.skipped == {}
    assert sorted(path.name for path in (tmp_path / "stock").iterdir()) == [RECORDS, WORKLOADS]
    database = read(tmp_path / "stock")
    assert database.measured == tuned.database.measured
    assert database.subgraphs == tuned.database.subgraphs
    assert set(database.sketches) == set(tuned.database.sketches)
    assert database.modules == tuned.database.modules


def test_stock_metaschedule_finds_the_best_program(tuned: Tuned, tmp_path: Path) -> None:
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    from kintune.compiler.space.sketches import parse_trace

    export(tmp_path, tuned.database)
    best = tuned.database.measured[-1]
    stock = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert len(stock) == len(tuned.database.measured)
    record = stock.query_tuning_record(tuned.module, tuned.target, "main")
    assert [float(s) for s in record.run_secs] == pytest.approx([time * 1e-6 for time in best.times_us])
    schedule = stock.query_schedule(tuned.module, tuned.target, "main")
    sketch, decisions = parse_trace(best.candidate.workload, tuned.module, schedule.trace)
    assert Candidate(best.candidate.workload, sketch.digest, decisions) == best.candidate
    with tuned.target, stock:
        applied = relax.transform.MetaScheduleApplyDatabase()(tuned.module)
    tvm.ir.assert_structural_equal(applied["main"].body, schedule.mod["main"].body)


def test_what_stock_metaschedule_wrote_is_read(tuned: Tuned, tmp_path: Path) -> None:
    """Records as the stock tuner commits them: drawn from its design space, post-processed, some of them failed."""
    from tvm.s_tir import Schedule, Trace
    from tvm.s_tir import meta_schedule as ms

    context = ms.TuneContext(tuned.module, target=tuned.target, space_generator="post-order-apply", num_threads=1)
    stock = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = stock.commit_workload(tuned.module)
    for number, design in enumerate(context.generate_design_space()):
        schedule = Schedule(tuned.module, seed=number + 1, debug_mask=0)
        Trace(design.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=False)
        schedule.enter_postproc()
        assert all(processor.apply(schedule) for processor in context.space_generator.postprocs)
        for seconds in ([2e-5, 3e-5], [1e10]):
            stock.commit_tuning_record(
                ms.database.TuningRecord(
                    schedule.trace, workload, seconds, tuned.target, ms.arg_info.ArgInfo.from_entry_func(tuned.module)
                )
            )
    database = read(tmp_path)
    assert {measured.times_us for measured in database.measured} == {(20.0, 30.0)}
    assert database.skipped == {"a failed measurement": len(tuned.database.sketches)}
    assert database.subgraphs == tuned.database.subgraphs
    assert set(database.sketches) == set(tuned.database.sketches)


def test_what_cannot_be_exported_is_counted(tuned: Tuned, tmp_path: Path) -> None:
    first = tuned.database.measured[0]
    unhonourable = Candidate(first.candidate.workload, first.candidate.sketch, first.candidate.decisions[:-1])
    measured = [
        msgspec.structs.replace(first, candidate=Candidate.untuned(first.candidate.workload)),
        msgspec.structs.replace(first, times_us=()),
        msgspec.structs.replace(first, candidate=unhonourable),
        first,
    ]
    exported = export(tmp_path, msgspec.structs.replace(tuned.database, measured=tuple(measured)))
    assert exported.written == 1
    assert sum(exported.skipped.values()) == 3
    assert exported.skipped["the untuned program"] == exported.skipped["a failed measurement"] == 1


def test_a_database_is_never_overwritten(tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / RECORDS).write_text("precious\n")
    with pytest.raises(InputError, match=r"holds database_tuning_record\.json already"):
        export(tmp_path, tuned.database)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["precious\n"]


def test_an_unwritable_place_is_named(tuned: Tuned, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file/stock: cannot be written"):
        export(tmp_path / "file" / "stock", tuned.database)


def test_a_line_cut_short_is_skipped_only_at_the_end(tuned: Tuned, tmp_path: Path) -> None:
    export(tmp_path, tuned.database)
    path = tmp_path / RECORDS
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines)[:-40])
    database = read(tmp_path)
    assert database.measured == tuned.database.measured[:-1]
    assert database.skipped == {"a last line cut short": 1}
    path.write_bytes(lines[0][:-40] + b"\n" + lines[1])
    with pytest.raises(InputError, match=r"database_tuning_record\.json, line 1: not a record of this TVM version"):
        read(tmp_path)


def test_a_directory_without_a_database_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"database_workload\.json: cannot be read: No such file or directory"):
        read(tmp_path)


@pytest.mark.slow  # fast tests do it in this process
def test_the_same_is_done_aside_for_callers_without_the_compiler(
    tuned: Tuned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    assert export_metaschedule(tmp_path, tuned.database) == Exported(len(tuned.database.measured), {})
    assert read_metaschedule(tmp_path).measured == tuned.database.measured
    with pytest.raises(InputError, match="already; name another directory"):
        export_metaschedule(tmp_path, tuned.database)


def test_a_process_that_fails_is_an_error_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(EngineError, match="ended without an answer"):
        read_metaschedule(tmp_path)
