from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest

from kintune.cli import main
from kintune.errors import InputError, JobFailed
from kintune.testing.small_onnx import write_small_onnx
from kintune_lab.bench.experiments import compare
from kintune_lab.bench.experiments.compare import EXPERIMENT, JSON, MARKDOWN
from kintune_lab.bench.spec import BenchSpec, read_bench_spec
from kintune_lab.comparison.run import FileComparison, FileSettings
from kintune_lab.experiment.experiment import CellFailure, Show
from kintune_lab.spec_document import Document, SpecError

ROOT = Path(__file__).parents[4]
HEAD = 'name = "c"\nexperiment = "compare"\n[matrix]\n'


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()


def spec_of(text: str) -> BenchSpec:
    Path("c.toml").write_text(HEAD + text)
    return read_bench_spec("c.toml")


class FakeComparison:
    """Stands for the work on a file; those called `broken` fail, with their others timed."""

    def __init__(self) -> None:
        self.settings: list[FileSettings] = []
        self.interrupted = ""

    def __call__(self, settings: FileSettings, directory: Path, work: Path, show: Show) -> FileComparison:
        name = Path(settings.model).stem
        if name == self.interrupted:
            raise KeyboardInterrupt
        self.settings.append(settings)
        (work / "tuning.kt").touch()
        row = {"onnxruntime_ms": 2.0, "cores": 2, "failure": ""}
        if name == "broken":
            return FileComparison({"results": [{**row, "failure": "LSTM x1"}]}, JobFailed("LSTM x1"))
        return FileComparison({"results": [{**row, "kintune_ms": 1.0, "whole": True, "runs_in": "Kintune"}]})


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> FakeComparison:
    fake = FakeComparison()
    monkeypatch.setattr(compare, "compare_file", fake)
    return fake


def test_every_file_of_a_folder_is_a_cell() -> None:
    for name in ("b", "a"):
        write_small_onnx(f"models/{name}.onnx")
    spec = spec_of('model = ["models", "zoo:gpt2"]\n')
    assert [cell.values["model"] for cell in spec.cells] == ["models/a.onnx", "models/b.onnx", "zoo:gpt2"]
    assert spec.cells[0].id != spec.cells[1].id
    assert spec.models == {}  # none is imported before the first cell


def test_a_changed_file_is_compared_again() -> None:
    write_small_onnx("models/a.onnx")
    before = spec_of('model = "models"\n').cells[0].id
    write_small_onnx("models/a.onnx", seed=1)
    assert spec_of('model = "models"\n').cells[0].id != before


def test_changed_weights_beside_a_file_are_compared_again() -> None:
    path = Path(write_small_onnx("models/a.onnx"))
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="a.data", size_threshold=0)
    before, weights = spec_of('model = "models"\n').cells[0].id, Path("models/a.data")
    weights.write_bytes(bytes(weights.stat().st_size))
    assert spec_of('model = "models"\n').cells[0].id != before
    weights.unlink()  # the comparison says what is missing
    assert spec_of('model = "models"\n').cells[0].id != before


def test_changed_constants_are_compared_again() -> None:
    write_small_onnx("models/a.onnx")
    found = []
    for values in ([1, 2], [1, 2], [3, 4]):
        np.save("sizes.npy", np.array(values))
        found.append(spec_of('model = "models"\nconstants = "n=1 sizes=sizes.npy"\n').cells[0].id)
    assert found[0] == found[1] != found[2]


def test_every_option_reaches_the_work(work: FakeComparison, tmp_path: Path) -> None:
    write_small_onnx("models/a.onnx")
    Path("in.npz").touch()
    (cell,) = spec_of(
        'model = "models"\nminutes = 0\nthreads = 1\nseed = 3\nrtol = 0.5\natol = 0.25\nbaselines = "torch, openvino"\n'
        'rounds = 7\nkeep = true\n[[model]]\nname = "a"\nshapes = "x=1x2 y=3"\nconstants = "s=1"\ninputs = "in.npz"\n'
    ).cells
    EXPERIMENT.run(cell, tmp_path, lambda progress: None)
    assert work.settings == [
        FileSettings(
            "models/a.onnx", "x=1x2 y=3", "s=1", "in.npz", 0.0, 3, 1, 0.5, 0.25, ("torch", "openvino"), 7
        )
    ]  # fmt: skip
    assert (tmp_path / "executable/tuning.kt").exists()
    assert EXPERIMENT.seconds(cell, {}) == 90.0


def test_executables_are_deleted_and_what_failed_keeps_its_tables(work: FakeComparison, tmp_path: Path) -> None:
    write_small_onnx("models/broken.onnx")
    (cell,) = spec_of('model = "models"\nbaselines = "none"\n').cells
    with pytest.raises(CellFailure, match="LSTM x1") as failure:
        EXPERIMENT.run(cell, tmp_path, lambda progress: None)
    assert failure.value.tables["results"][0]["onnxruntime_ms"] == 2.0
    assert work.settings[0].others == ()
    assert not (tmp_path / "executable").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('model = "none"\n', r'c.toml:4: model = "none": there is no such file'),
        ('model = "models"\n', r"c.toml:4: model = .models.: there is no .onnx or .pt2 file in this folder"),
        ('model = "zoo:none"\n', r"c.toml:4: model = .zoo:none.: "),
        ('model = "zoo:gpt2"\nshapes = "x"\n', r"c.toml:5: shapes = .x.: .*write NAME=DIM"),
        ('model = "zoo:gpt2"\nconstants = "x"\n', r"c.toml:5: constants = .x.: .*write NAME=VALUE"),
        ('model = "zoo:gpt2"\nminutes = -1\n', r"c.toml:5: minutes = -1: must be 0 or more"),
        ('model = "zoo:gpt2"\nbaselines = "onnx"\n', r"c.toml:5: baselines = .onnx.: there is no runtime 'onnx'"),
        ('model = "zoo:gpt2"\ncalibrate = "nowhere"\n', r"c.toml:5: calibrate = .nowhere.: the calibration files"),
        ('model = "zoo:gpt2"\nprecision = "int8"\n', r"int8 needs inputs to quantise with: set calibrate"),
        ('model = "zoo:gpt2"\nbaselines = "openvino_int8"\n', r"openvino_int8 needs inputs to quantise with"),
        ('model = "zoo:gpt2"\n[[model]]\nname = "bert"\nminutes = 1\n', r"c.toml:6: name = .bert.: no model of"),
        ("minutes = 1\n", r"needs model = "),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_before_any_work(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        spec_of(text)


def test_a_whole_bench_goes_on_where_it_was_and_reports(
    work: FakeComparison, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "broken", "c"):
        write_small_onnx(f"models/{name}.onnx")
    Path("c.toml").write_text(HEAD + 'model = "models"\n')
    work.interrupted = "c"
    assert main(["bench", "c.toml", "--output", "out", "--quiet"]) not in (0, 1)
    work.interrupted = ""
    assert main(["bench", "c.toml", "--output", "out", "--quiet"]) == 1  # one file failed
    assert [Path(settings.model).stem for settings in work.settings] == ["a", "broken", "c"]
    document = json.loads(Path("out", JSON).read_text())
    (comparison,) = document["comparisons"]
    assert comparison["summary"]["results"] == 2
    assert comparison["summary"]["failed"] == {"broken": "LSTM x1"}
    assert comparison["summary"]["against"][0]["mean"] == 0.5
    assert "| broken |" in Path("out", MARKDOWN).read_text()
    with Path("out/results.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    assert "Against other runtimes" in Path("out/report.html").read_text()
    files = json.loads(Path("out/bench.json").read_text())["files"]
    assert {JSON, MARKDOWN, "results.csv"} <= set(files)
    assert "LSTM x1" in capsys.readouterr().out


def test_the_specs_of_the_repository_name_only_files_that_the_scripts_write() -> None:
    from benchmarks.exported_networks import NETWORKS as EXPORTS
    from benchmarks.fetch_models import FURTHER, MORE, OTHERS, UNSEEN
    from benchmarks.fetch_models import NETWORKS as PACKAGES

    assert len(PACKAGES) == 20
    specs = {
        "compare.toml": PACKAGES,
        "compare_others.toml": OTHERS,
        "compare_more.toml": MORE,
        "compare_further.toml": FURTHER,
        "compare_unseen.toml": UNSEEN,
        "compare_exports.toml": EXPORTS,
    }
    for spec, networks in specs.items():
        content = Document.read(str(ROOT / "benchmarks" / spec)).content
        folder = Path(content["matrix"]["model"])
        folder.mkdir(parents=True)
        for network in networks:
            (folder / f"{network.name}.onnx").touch()
        cells = read_bench_spec(str(ROOT / "benchmarks" / spec)).cells
        assert len(cells) == len(networks)


def test_the_specs_of_networks_that_are_written_here_can_be_read() -> None:
    from benchmarks.exported_networks import NETWORKS as EXPORTS
    from benchmarks.write_networks import NETWORKS as PROGRAMS

    for folder, names in (("exports", [each.name for each in EXPORTS]), ("programs", PROGRAMS)):
        Path("models", folder).mkdir()
        for name in names:
            Path("models", folder, f"{name}.onnx").touch()
    for name, count in (("programs", 4 + len(PROGRAMS)), ("fewer", 5), ("bf16", 4), ("paper", 5)):
        assert len(read_bench_spec(str(ROOT / f"benchmarks/compare_{name}.toml")).cells) == count


def test_the_spec_of_denormal_numbers_can_be_read() -> None:
    Path("models/others").mkdir(parents=True)
    Path("models/others/ocr6_detector.onnx").touch()
    cells = read_bench_spec(str(ROOT / "benchmarks/compare_denormals.toml")).cells
    assert len(cells) == 2
    for cell in cells:
        EXPERIMENT.check(cell)


def test_the_specs_in_8_bits_can_be_read() -> None:
    from benchmarks.trained_inputs import MAKERS

    for name in MAKERS:
        folder = Path("models/inputs", name)
        folder.mkdir(parents=True)
        (folder / "00.npz").touch()
        Path("models/packages").mkdir(exist_ok=True)
        Path("models/packages", f"{name}.onnx").touch()
    cells = read_bench_spec(str(ROOT / "benchmarks/compare_trained.toml")).cells
    assert len(cells) == 3 * len(MAKERS)
    for cell in (*cells, *read_bench_spec(str(ROOT / "benchmarks/compare_int8.toml")).cells):
        EXPERIMENT.check(cell)


def test_an_unknown_baseline_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="openvino_bf16, onnxruntime_int8, openvino_int8, torch"):
        EXPERIMENT.options["baselines"].accept("tflite")


@pytest.mark.tvm
def test_two_small_files_are_compared_for_real(tmp_path: Path) -> None:
    write_small_onnx("models/good.onnx")
    write_small_onnx("models/bad.onnx", operator="Unheard")
    Path("c.toml").write_text(
        HEAD + 'model = "models"\nminutes = 0\nrounds = 2\nthreads = 1\nbaselines = "onnxruntime"\n'
    )
    assert main(["bench", "c.toml", "--output", "out", "--quiet"]) == 1
    document = msgspec.json.decode(Path("out", JSON).read_bytes())
    (comparison,) = document["comparisons"]
    good, bad = comparison["files"]["good"], comparison["files"]["bad"]
    assert (good["whole"], good["runs_in"], good["correct"]) == (True, "Kintune", True)
    assert good["kintune_ms"] > 0
    assert good["onnxruntime_ms"] > 0
    assert bad["failed_at"] == "compiling"
    assert "Unheard" in bad["failure"]
    assert "\n" not in bad["failure"]
