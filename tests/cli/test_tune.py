from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kintune.core.config import Strategy
from kintune.core.report import Latencies
from kintune.errors import InputError, JobFailed, TargetError
from kintune.tuning.front.driver import Scheduling
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.conftest import FakeFront
    from tests.support.command import Kintune

ZOO = "zoo:mobilenet_v1_0.5"

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def test_what_was_asked_for_reaches_the_tuner(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", input=np.zeros(1))
    said = kintune(
        "tune", ZOO, "--target", "llvm", "--threads", 3, "--trials", 64, "--minutes", 2.5, "--until", "4ms",
        "--families", "hash", "--foresee", "published", "--no-carry", "--no-kin", "--round-size", 24,
        "--seed", 7, "--input", "x.npz", "--rtol", 0.01, "--atol", 0.02, "--records", "r.sqlite",
        "--output", "out.kt", "--fresh", "--log", "out.log", "--quiet",
    )  # fmt: skip
    assert said.code == 0
    (request,) = fake_front.requests
    options = request.options
    assert (request.model.kind, request.model.source) == ("zoo", "mobilenet_v1_0.5")
    assert (options.trials, options.minutes, options.until) == (64, 2.5, "4")
    assert (options.kin, options.seed, options.rtol, options.atol) == (False, 7, 0.01, 0.02)
    assert options.strategy == Strategy(
        families="hash", foresee="published", carry=False, round_size=24, foresee_size=12
    )
    assert (request.target, request.threads, request.fresh, request.records) == ("llvm", 3, True, "r.sqlite")
    assert request.output == str(tmp_path / "out.kt")
    assert request.log == str(tmp_path / "out.log")
    assert request.inputs == (str(tmp_path / "x.npz"),)


def test_a_directory_of_inputs_is_its_files_by_name(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    said = kintune("tune", ZOO, "--quiet", "--input", "sets")
    assert (said.code, said.err.count("\n"), fake_front.requests) == (2, 1, [])
    assert "sets: there is no .npz file in this directory" in said.err
    for name in ("b.npz", "a.npz", "notes.txt"):
        (tmp_path / "sets" / name).touch()
    assert kintune("tune", ZOO, "--quiet", "--input", "sets").code == 0
    assert fake_front.requests[0].inputs == (str(tmp_path / "sets" / "a.npz"), str(tmp_path / "sets" / "b.npz"))


def test_without_a_limit_there_are_a_thousand_trials(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    kintune("tune", ZOO, "--quiet")
    kintune("tune", ZOO, "--quiet", "--minutes", 3)
    assert [request.options.trials for request in fake_front.requests] == [1000, None]
    assert fake_front.requests[0].output == str(tmp_path / "mobilenet_v1_0.5.kt")


def test_what_is_not_asked_for_is_as_the_search_has_it(kintune: Kintune, fake_front: FakeFront) -> None:
    kintune("tune", ZOO, "--quiet")
    kintune("tune", ZOO, "--quiet", "--families", "measured", "--round-size", 2)
    first, second = (request.options for request in fake_front.requests)
    assert (first.strategy, first.kin) == (Strategy(), True)
    assert second.strategy == Strategy(families="measured", round_size=2, foresee_size=1)


def test_a_foresee_round_stays_small(kintune: Kintune, fake_front: FakeFront) -> None:
    kintune("tune", ZOO, "--quiet", "--round-size", 128)
    assert fake_front.requests[0].options.strategy == Strategy(round_size=128, foresee_size=16)


def test_progress_goes_to_standard_error_and_the_summary_to_standard_output(
    kintune: Kintune, fake_front: FakeFront
) -> None:
    said = kintune("tune", ZOO)
    assert "1 of 1000 trials" in said.err
    assert "2 of 1000 trials" in said.err
    assert said.out.startswith("resnet18: 15.0 ms, 1.08x as fast as onnxruntime (16.2 ms).\n")
    assert kintune("tune", ZOO, "--quiet").err == ""


def test_a_faster_rival_is_the_first_word(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = example_report(latency_ms=Latencies.of({"tuned": [15.5], "onnxruntime": [12.7]}))
    assert kintune("tune", ZOO).out.startswith("resnet18: 15.5 ms, slower than onnxruntime")


def test_the_document_goes_to_a_file(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    assert kintune("tune", ZOO, "--json", "report.json").code == 0
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["schema_version"] == 2
    assert document["latency_ms"]["tuned"] == 15.0
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_the_document_has_standard_output_to_itself(kintune: Kintune, fake_front: FakeFront) -> None:
    said = kintune("tune", ZOO, "--json", "-", "--quiet")
    assert json.loads(said.out)["run_id"] == fake_front.outcome.run_id
    assert "1.08x as fast as onnxruntime" in said.err


def test_a_document_that_cannot_be_written_does_not_hide_the_summary(
    kintune: Kintune, fake_front: FakeFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise InputError(f"{path}: cannot be written (No space left on device)")

    monkeypatch.setattr("kintune.cli.document.write_whole", refuse)
    said = kintune("tune", ZOO, "--quiet", "--json", "report.json")
    assert said.code == 2
    assert "1.08x as fast as onnxruntime" in said.out
    assert "No space left" in said.err


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--trials", "0"], "trials must be 1 or more, and is 0"),
        (["--trials", "-5"], "trials must be 1 or more, and is -5"),
        (["--trials", "many"], "'many' is not a valid integer"),
        (["--minutes", "0"], "minutes must be more than 0, and is 0"),
        (["--minutes", "nan"], "minutes must be more than 0, and is nan"),
        (["--until", "-1"], "until '-1': the latency must be more than 0, and is -1"),
        (["--until", "tensorrt*0.8"], "there is no baseline 'tensorrt'"),
        (["--until", "torch"], "the model is not a PyTorch exported program"),
        (["--threads", "0"], "threads must be 1 or more, and is 0"),
        (["--seed", "-1"], "seed must be 0 or more, and is -1"),
        (["--seed", "1" + "0" * 20], "seed must be less than 2**63, and is 1000"),
        (["--trials", "1" + "0" * 20], "trials must be less than 2**63, and is 1000"),
        (["--rtol", "-1"], "rtol must be 0 or more, and is -1"),
        (["--atol", "inf"], "atol must be 0 or more, and is inf"),
        (["--families", "friends"], "unknown families 'friends'; use one of: op, hash, ind, none, measured"),
        (["--input", ".", "--random-sets", "4"], "random_sets and given inputs do not go together"),
        (["--foresee", "always"], "unknown foresee 'always'; use one of: none, published, guarded"),
        (["--round-size", "0"], "round_size must be 1 or more, and is 0"),
        (["--output", "missing/out.kt"], "there is no directory"),
        (["--output", "."], "is a directory"),
        (["--json", "missing/report.json"], "there is no directory"),
        (["--log", "missing/out.log"], "there is no directory"),
        (["--input", "missing.npz"], "missing.npz does not exist"),
        (["--shape", "input"], "input=1x3x224x224"),
        (["--shape", "input=1x{}"], "a brace is empty"),
        (["--shape", "x=1x{2,3}", "--shape", "y={1,2,3}"], "x has 2 alternative shapes and y has 3"),
        (["--shape", "x=1x{2,2}"], "the shapes x=1x2 are named twice"),
        (["--shape", "x=1x{2,3}", "--device", "cuda"], "several shapes in one result are for this machine's CPU"),
        (["--shape", "x=1x2", "x=1x3"], "x=1x3 is not a model: the shell has expanded the braces of --shape"),
        (["--schedule", "missing/schedule.jsonl"], "there is no directory"),
        (["zoo:resnet18", "--output", "missing"], "the output missing is not a directory"),
        (["zoo:resnet18", "--priority", "2"], "there are 1 of them for 2 models"),
        (["--priority", "0"], "priority must be more than 0, and is 0"),
        (["zoo:resnet18", "--shape", "input=1x2"], "--shape, --constant, --input and --calibrate are for one model"),
    ],
)
def test_bad_input_is_one_line_before_any_work(
    kintune: Kintune, fake_front: FakeFront, tmp_path: Path, arguments: list[str], names: str
) -> None:
    said = kintune("tune", ZOO, *arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("kintune: error: ")
    assert names in said.err
    assert said.err.count("\n") == 1
    assert fake_front.requests == []
    assert list(tmp_path.iterdir()) == []


def test_braces_that_the_shell_has_expanded_before_the_model_are_told(kintune: Kintune, fake_front: FakeFront) -> None:
    said = kintune("tune", "--shape", "ids=1x32", "ids=1x64", ZOO)
    assert said.code == 2
    assert "ids=1x64 is not a model: the shell has expanded the braces of --shape" in said.err


@pytest.mark.parametrize("model", ["missing.onnx", "zoo:resnet19", "."])
def test_a_model_that_is_not_there_is_named(kintune: Kintune, fake_front: FakeFront, model: str) -> None:
    said = kintune("tune", model)
    assert said.code == 2
    assert model in said.err
    assert fake_front.requests == []


def test_what_the_tuner_refuses_is_input_that_was_wrong(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = TargetError("unknown target 'z80'; use native or a target of TVM")
    said = kintune("tune", ZOO, "--quiet", "--json", "report.json")
    assert (said.code, said.out) == (2, "")
    assert said.err == "kintune: error: unknown target 'z80'; use native or a target of TVM\n"
    report = json.loads(Path("report.json").read_text())
    assert (report["error"], report["trials"]) == ("TargetError", 0)


def test_a_job_without_a_result_has_failed(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = JobFailed("no candidate could be measured: 64 build failed")
    said = kintune("tune", ZOO, "--quiet")
    assert (said.code, said.err) == (1, "kintune: error: no candidate could be measured: 64 build failed\n")


def test_a_second_interrupt_ends_at_once(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = KeyboardInterrupt()
    assert kintune("tune", ZOO, "--quiet").code == 130


def test_a_written_document_can_be_read_by_whom_the_umask_allows(
    kintune: Kintune, fake_front: FakeFront, tmp_path: Path
) -> None:
    kintune("tune", ZOO, "--quiet", "--json", "report.json")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "report.json")}
    assert len(modes) == 1


def test_several_models_are_tuned_at_once(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    said = kintune(
        "tune", ZOO, "zoo:resnet18", "--policy", "fair", "--bundling", "--no-pipeline", "--schedule", "s.jsonl",
        "--output", "out", "--device", "cpu:1", "--json", "report.json", "--priority", 1, "--priority", 2.5,
    )  # fmt: skip
    assert said.code == 0
    assert fake_front.scheduling == Scheduling("fair", bundling=True, pipelined=False, log=str(tmp_path / "s.jsonl"))
    assert [Path(request.output).name for request in fake_front.requests] == ["mobilenet_v1_0.5.kt", "resnet18.kt"]
    assert {request.device for request in fake_front.requests} == {"cpu:1"}
    assert [request.priority for request in fake_front.requests] == [1.0, 2.5]
    assert {Path(request.output).parent for request in fake_front.requests} == {tmp_path / "out"}
    assert said.out.count("1.08x as fast as onnxruntime") == 2
    assert "mobilenet_v1_0.5: " in said.err
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["schema_version"], document["policy"], len(document["runs"])) == (2, "fair", 2)


def test_one_of_several_that_fails_does_not_hide_the_others(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcomes = {"resnet18": JobFailed("nothing ran")}
    said = kintune("tune", "zoo:resnet18", ZOO, "--quiet", "--json", "report.json")
    assert said.code == 1
    assert "1.08x as fast as onnxruntime" in said.out
    assert said.err == "kintune: error: 1 of 2 models failed: resnet18: nothing ran\n"
    (failed,) = json.loads(Path("report.json").read_text())["failed"]
    assert failed == {"model": "resnet18", "error": "JobFailed", "reason": "nothing ran"}


def test_if_nothing_but_input_was_wrong_the_exit_code_says_so(kintune: Kintune, fake_front: FakeFront) -> None:
    fake_front.outcome = TargetError("unknown target")
    assert kintune("tune", "zoo:resnet18", ZOO, "--quiet").code == 2


def test_alternatives_in_braces_are_one_request(kintune: Kintune, fake_front: FakeFront) -> None:
    said = kintune("tune", ZOO, "--quiet", "--shape", "ids=1x{32,64}", "--shape", "image=1x3")
    assert said.code == 0
    (request,) = fake_front.requests
    assert request.model.combinations == ({"ids": (1, 32), "image": (1, 3)}, {"ids": (1, 64), "image": (1, 3)})
