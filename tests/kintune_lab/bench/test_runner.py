from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.errors import InputError, JobFailed
from kintune.files import write_whole
from kintune_lab.bench import directory
from kintune_lab.bench import summary as summary_module
from kintune_lab.bench.directory import BenchDirectory, CellState
from kintune_lab.bench.display import open_bench_display
from kintune_lab.bench.runner import BenchRunner, models_of
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.experiment.experiment import Cell, CellFailure, ModelFacts, Show
from kintune_lab.experiment.tables import Row, Tables
from kintune_lab.spec_document import SpecError
from tests.support.fake_experiment import FakeExperiment

if TYPE_CHECKING:
    from tests.kintune_lab.bench.conftest import ReadSpec
from kintune.errors import EngineError, ModelError
from kintune_lab.bench.runner import check_imports, import_models, seconds_left

SPEC = "[matrix]\nseed = [0, 1, 2, 3]\n"


class Killed(BaseException):
    """What no code of ours handles, as a kill would not be."""


def nothing_imported(models: Sequence[str]) -> Mapping[str, ModelFacts]:
    return {}


def bench_of(spec: BenchSpec, output: Path) -> BenchRunner:
    return BenchRunner(spec, output, open_bench_display("", quiet=True), nothing_imported)


def contents(directory: Path) -> dict[str, bytes]:
    """All files but the cells' own records, which have times in them."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in ("cell.json", ".lock", "bench.json", "report.html", "cells.csv")
    }


def raising(error: BaseException, at: int) -> Callable[[Cell], None]:
    """Raises `error` in the `at`-th run, once."""
    runs = iter(range(1_000_000))

    def upset(_cell: Cell) -> None:
        if next(runs) == at:
            raise error

    return upset


def test_every_cell_is_run_once_and_observed(spec_of: ReadSpec, tmp_path: Path) -> None:
    fake = FakeExperiment()
    summary = bench_of(spec_of(SPEC, fake), tmp_path / "out").run()
    assert (summary.cells, summary.done, summary.failed, summary.left) == (4, 4, (), 0)
    assert list(fake.ran.values()) == [1, 1, 1, 1]
    lines = (tmp_path / "out/results.csv").read_text().splitlines()
    assert lines[0] == "cell,model,data,seed,asked_size,rate,mode,carry,method,turn,size"
    assert lines[1].split(",")[1:] == ["", "", "0", "64", "1.0", "calm", "true", "none", "0", "0"]
    assert len(lines) == 1 + 8
    assert not (tmp_path / "out/empty.csv").exists()
    assert len((tmp_path / "out/cells.csv").read_text().splitlines()) == 5
    assert (tmp_path / "out/report.html").exists()
    assert (tmp_path / "out/spec.toml").read_text() == (tmp_path / "spec.toml").read_text()


def test_a_second_bench_has_nothing_to_do(spec_of: ReadSpec, tmp_path: Path) -> None:
    fake = FakeExperiment()
    spec = spec_of(SPEC, fake)
    bench_of(spec, tmp_path / "out").run()
    before = contents(tmp_path / "out")
    assert bench_of(spec, tmp_path / "out").run().done == 4
    assert list(fake.ran.values()) == [1, 1, 1, 1]
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("error", [Killed(), KeyboardInterrupt()])
def test_whoever_is_ended_goes_on_where_it_was(
    spec_of: ReadSpec, tmp_path: Path, at: int, error: BaseException
) -> None:
    fake = FakeExperiment(raising(error, at))
    spec = spec_of(SPEC, fake)
    with pytest.raises(type(error)):
        bench_of(spec, tmp_path / "out").run()
    assert sum(fake.ran.values()) == at
    state = BenchDirectory(tmp_path / "out").record(spec.cells[at])
    assert state is not None
    assert state.state is (CellState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else CellState.RUNNING)
    assert bench_of(spec, tmp_path / "out").run().done == 4
    assert list(fake.ran.values()) == [1, 1, 1, 1]
    untouched = FakeExperiment()
    bench_of(spec_of(SPEC, untouched), tmp_path / "other").run()
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


@given(data=st.data())
def test_every_cell_is_done_once_wherever_files_could_not_be_written(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("killed")
    (folder / "spec.toml").write_text('name = "a"\nexperiment = "fake"\n[matrix]\nseed = [0, 1, 2]\n')
    fake = FakeExperiment()
    spec = read_bench_spec(str(folder / "spec.toml"), lambda _: fake)
    with pytest.MonkeyPatch.context() as patch:
        for _ in range(data.draw(st.integers(0, 4), label="kills")):
            left = data.draw(st.integers(0, 20), label="writes before the kill")

            def write(path: Path, content: bytes, real: Callable[[Path, bytes], None] = write_whole) -> None:
                nonlocal left
                if left == 0:
                    raise Killed
                left -= 1
                real(path, content)

            patch.setattr(directory, "write_whole", write)
            patch.setattr(summary_module, "write_whole", write)
            try:
                bench_of(spec, folder / "out").run()
            except Killed:
                continue
        patch.undo()
        done = [cell for cell in spec.cells if BenchDirectory(folder / "out").is_done(cell)]
        counted = dict(fake.ran)
        assert bench_of(spec, folder / "out").run().done == 3
    for cell in done:
        assert fake.ran[cell.id] == counted[cell.id]
    assert len((folder / "out/results.csv").read_text().splitlines()) == 1 + 6


def test_a_cell_that_fails_does_not_end_the_rest(spec_of: ReadSpec, tmp_path: Path) -> None:
    fake = FakeExperiment(raising(JobFailed("nothing could be measured;\n see the log"), 1))
    spec = spec_of(SPEC, fake)
    summary = bench_of(spec, tmp_path / "out").run()
    assert (summary.done, len(summary.failed)) == (3, 1)
    assert (summary.failed[0].error, summary.failed[0].title) == ("JobFailed", "seed 1")
    assert summary.failed[0].reason == "nothing could be measured; see the log"
    assert "nothing could be measured" in (tmp_path / "out/report.html").read_text()
    assert "JobFailed" in (tmp_path / "out/cells.csv").read_text()
    assert json.loads((tmp_path / "out/bench.json").read_text())["failed"][0]["error"] == "JobFailed"
    assert len(bench_of(spec, tmp_path / "out").run().failed) == 1
    assert sum(fake.ran.values()) == 3
    assert bench_of(spec, tmp_path / "out").run(retry_failed=True).failed == ()
    assert list(fake.ran.values()) == [1, 1, 1, 1]


def test_a_failure_that_nobody_thought_of_is_a_failure_too(spec_of: ReadSpec, tmp_path: Path) -> None:
    summary = bench_of(spec_of(SPEC, FakeExperiment(raising(ZeroDivisionError(), 0))), tmp_path / "out").run()
    assert [cell.error for cell in summary.failed] == ["ZeroDivisionError"]


def test_a_cell_that_fails_may_have_observed_something(
    spec_of: ReadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeExperiment()
    rows: list[Row] = [{"x": 1}]

    def run(cell: Cell, directory: Path, show: Show) -> Tables:
        raise CellFailure(JobFailed("too slow"), {"results": rows})

    monkeypatch.setattr(fake, "run", run)
    spec = spec_of("", fake)
    summary = bench_of(spec, tmp_path / "out").run()
    assert [(cell.error, cell.reason) for cell in summary.failed] == [("JobFailed", "too slow")]
    assert (tmp_path / "out/results.csv").read_text().splitlines()[0].endswith(",x")
    assert bench_of(spec, tmp_path / "out").plan() == []
    assert len(bench_of(spec, tmp_path / "out").plan(retry_failed=True)) == 1
    rows[0] = {"x": [1]}  # type: ignore[dict-item]
    assert [cell.error for cell in bench_of(spec, tmp_path / "out").run(retry_failed=True).failed] == ["KintuneError"]


def test_an_experiment_may_write_files_about_all_cells(
    spec_of: ReadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Concluding(FakeExperiment):
        def conclude(self, directory: Path, cells: Sequence[Path], tables: Tables) -> Sequence[str]:
            assert directory == tmp_path / "out"
            assert len(tables["results"]) == 2 * 3
            (directory / "all.txt").write_text("\n".join(path.parent.name for path in cells))
            return ["all.txt"]

    spec = spec_of(SPEC, Concluding(raising(JobFailed("no"), 1)))
    summary = bench_of(spec, tmp_path / "out").run()
    assert "all.txt" in summary.files
    assert (tmp_path / "out/all.txt").read_text().split() == [cell.id for cell in spec.cells]


def test_a_table_that_is_none_fails_its_cell(
    spec_of: ReadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeExperiment()
    monkeypatch.setattr(fake, "run", lambda cell, directory, show: {"results": [{"x": [1]}]})
    assert len(bench_of(spec_of(SPEC, fake), tmp_path / "out").run().failed) == 4


def test_what_an_interrupted_cell_left_is_gone_when_it_is_repeated(
    spec_of: ReadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeExperiment()
    spec = spec_of("", fake)
    seen: list[list[Path]] = []

    def run(cell: Cell, directory: Path, show: object) -> dict[str, list[dict[str, int]]]:
        seen.append(list(directory.iterdir()))
        (directory / "pool.bin").touch()
        if len(seen) == 1:
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(fake, "run", run)
    with pytest.raises(KeyboardInterrupt):
        bench_of(spec, tmp_path / "out").run()
    bench_of(spec, tmp_path / "out").run()
    assert seen == [[], []]


def test_cells_that_the_spec_names_no_more_are_kept_but_not_shown(spec_of: ReadSpec, tmp_path: Path) -> None:
    fake = FakeExperiment()
    bench_of(spec_of("[matrix]\nseed = [0, 1]\n", fake), tmp_path / "out").run()
    bench_of(spec_of("[matrix]\nseed = [1, 2]\n", fake), tmp_path / "out").run()
    assert sum(fake.ran.values()) == 3
    seeds = {line.split(",")[3] for line in (tmp_path / "out/results.csv").read_text().splitlines()[1:]}
    assert seeds == {"1", "2"}
    assert bench_of(spec_of("[matrix]\nseed = [0, 1, 2]\n", fake), tmp_path / "out").run().done == 3
    assert sum(fake.ran.values()) == 3


def test_a_method_goes_by_its_label_of_today(spec_of: ReadSpec, tmp_path: Path) -> None:
    text = '[[method]]\nname = "one"\n[[method]]\nname = "two"\nlabel = "{}"\n'
    fake = FakeExperiment()
    bench_of(spec_of(text.format("ours"), fake), tmp_path / "out").run()
    bench_of(spec_of(text.format("better"), fake), tmp_path / "out").run()
    assert sum(fake.ran.values()) == 1
    for name in ("results", "methods"):
        written = (tmp_path / f"out/{name}.csv").read_text()
        assert "better" in written
        assert "ours" not in written


def test_two_benches_do_not_share_a_directory(spec_of: ReadSpec, tmp_path: Path) -> None:
    spec = spec_of(SPEC)
    with BenchDirectory(tmp_path / "out").locked(), pytest.raises(InputError, match="another bench is at work in it"):
        bench_of(spec, tmp_path / "out").run()
    assert bench_of(spec, tmp_path / "out").run().done == 4


def test_a_report_can_be_written_while_another_bench_is_at_work(spec_of: ReadSpec, tmp_path: Path) -> None:
    spec = spec_of(SPEC)
    with BenchDirectory(tmp_path / "out").locked():
        assert bench_of(spec, tmp_path / "out").report().left == 4


def test_a_model_that_cannot_be_imported_ends_it_before_the_first_cell(spec_of: ReadSpec, tmp_path: Path) -> None:
    fake = FakeExperiment()
    spec = spec_of('[matrix]\nmodel = ["zoo:resnet18", "zoo:gpt2"]\nseed = [0, 1]\n', fake)
    asked: list[str] = []

    def refuse(models: Sequence[str]) -> Mapping[str, ModelFacts]:
        asked.extend(models)
        raise SpecError("spec.toml:4: no")

    with pytest.raises(SpecError):
        BenchRunner(spec, tmp_path / "out", open_bench_display("", quiet=True), refuse).run()
    assert asked == ["zoo:resnet18", "zoo:gpt2"] == models_of(spec, spec.cells)
    assert fake.ran == {}


def test_models_of_cells_that_are_done_are_not_imported_again(spec_of: ReadSpec, tmp_path: Path) -> None:
    bench_of(spec_of('[matrix]\nmodel = "zoo:resnet18"\n'), tmp_path / "out").run()
    spec = spec_of('[matrix]\nmodel = ["zoo:resnet18", "zoo:gpt2"]\n')
    assert models_of(spec, bench_of(spec, tmp_path / "out").plan()) == ["zoo:gpt2"]


@pytest.mark.parametrize("name", ["cell.json", "tables.json"])
def test_a_damaged_file_is_named(spec_of: ReadSpec, tmp_path: Path, name: str) -> None:
    spec = spec_of("")
    bench_of(spec, tmp_path / "out").run()
    path = BenchDirectory(tmp_path / "out").cell_directory(spec.cells[0]) / name
    path.write_text("{")
    with pytest.raises(InputError, match=f"{name}: is damaged"):
        bench_of(spec, tmp_path / "out").run()


def test_an_output_that_cannot_be_made_is_named(spec_of: ReadSpec, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InputError, match="cannot be written to"):
        bench_of(spec_of(SPEC), tmp_path / "out").run()


def test_what_is_kept_for_another_attempt_goes_once_the_tables_are_written(
    spec_of: ReadSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "turns"

    class Keeping(FakeExperiment):
        def run(self, cell: Cell, directory: Path, show: Show) -> Tables:
            kept.touch()
            return super().run(cell, directory, show)

        def settled(self, cell: Cell, directory: Path) -> None:
            assert directory == BenchDirectory(tmp_path / "out").cell_directory(cell) / "files"
            kept.unlink()

    def refuse(path: Path, content: bytes) -> None:
        if path.name == "tables.json":
            raise InputError("the disk is full")
        write_whole(path, content)

    spec = spec_of("", Keeping())
    monkeypatch.setattr(directory, "write_whole", refuse)
    with pytest.raises(InputError, match="the disk is full"):
        bench_of(spec, tmp_path / "out").run()
    assert kept.exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert bench_of(spec, tmp_path / "out").run().done == 1
    assert not kept.exists()


def test_expectations_are_corrected_by_how_they_held() -> None:
    assert seconds_left([10.0, 20.0], []) == 30.0
    assert seconds_left([10.0, 20.0], [(5.0, 10.0), (1.0, 2.0)]) == 60.0


def test_a_cell_of_which_nothing_is_known_is_like_those_before() -> None:
    assert seconds_left([None, None], [(None, 7.0), (None, 9.0)]) == 16.0
    assert seconds_left([None, 10.0], [(10.0, 30.0)]) == pytest.approx(60.0)


def test_without_any_ground_nothing_is_said() -> None:
    assert seconds_left([None], []) is None
    assert seconds_left([], []) == 0.0


def test_the_first_model_that_cannot_be_imported_is_named_with_its_line() -> None:
    def importer(text: str) -> ModelFacts:
        if text == "b.onnx":
            raise ModelError("b.onnx: operators that cannot be imported: Magic x1")
        return ModelFacts(1, 1, 1.0)

    where = 's.toml:4: model = "b.onnx": '
    with pytest.raises(SpecError, match=r"s.toml:4: model = .b.onnx.: cannot be imported: b.onnx: operators"):
        check_imports(["a.onnx", "b.onnx"], importer, {"b.onnx": where})
    assert check_imports(["a.onnx"], importer, {}) == {"a.onnx": ModelFacts(1, 1, 1.0)}


def test_an_import_that_crashes_is_refused_as_well() -> None:
    def importer(text: str) -> ModelFacts:
        raise EngineError("the process ended without an answer")

    with pytest.raises(SpecError, match="ended without an answer"):
        check_imports(["a.onnx"], importer, {})


def test_without_models_no_process_is_started() -> None:
    def say(line: str) -> None:
        raise AssertionError(line)

    assert import_models([], say, {}) == {}


@pytest.mark.slow
@pytest.mark.tvm
def test_models_are_imported_by_the_tuner_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.tiny_network import make_tiny_network

    path = str(make_tiny_network(tmp_path).onnx)
    said: list[str] = []
    facts = import_models([path], said.append, {})
    assert facts[path].tunable >= 1
    assert facts[path].flops > 2 * 4 * 48 * 48
    assert said == [f"importing {path}"]
    (tmp_path / "damaged.onnx").write_bytes(b"\x08\x09no graph")
    damaged = str(tmp_path / "damaged.onnx")
    with pytest.raises(SpecError, match=r"s.toml:7: .*damaged.onnx"):
        import_models([path, damaged], said.append, {damaged: "s.toml:7: "})
