from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest

from kintune.core.config import Metric, Options, TuneConfig
from kintune.core.latency_target import COMPARED, COMPARED_NARROW
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.model import Constant, ModelRef
from kintune.errors import InputError, OrderError
from kintune.testing.small_onnx import write_small_onnx
from kintune.tuning.front.request import TuneRequest, check_until, request_of, run_key
from kintune.wire import confinement
from kintune.wire.confinement import ConfinementLayer

REQUEST = TuneRequest(model=ModelRef("zoo", "resnet18", "resnet18"), output="resnet18.kt")


def key(**changes: object) -> str:
    return run_key(msgspec.structs.replace(REQUEST, **changes), 2, "a processor")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": ModelRef("zoo", "resnet50", "resnet50")},
        {"model": ModelRef("zoo", "resnet18", "resnet18", options={"batch": 2})},
        {"model": ModelRef("onnx", "resnet18", "resnet18", shapes={"x": (1, 3)})},
        {"model": ModelRef("zoo", "resnet18", "resnet18", constants={"x": Constant("int64", (), "digest")})},
        {"model": ModelRef("zoo", "resnet18", "resnet18", more_shapes=({"x": (1, 3)},))},
        {"target": "llvm"},
        {"options": Options(trials=1001)},
        {"options": Options(trials=1000, seed=1)},
        {"calibration": (__file__,)},
    ],
)
def test_other_work_has_another_key(changes: dict[str, object]) -> None:
    assert key(**changes) != key()


@pytest.mark.parametrize("options", [Options(trials=1000, precision="bf16"), Options(trials=1000, weights=4)])
def test_inputs_on_which_errors_are_measured_belong_to_the_work(options: Options, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(b"arrays")
    first = key(options=options, inputs=(str(path),))
    assert first != key(options=options)
    path.write_bytes(b"others")
    assert key(options=options, inputs=(str(path),)) != first


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "elsewhere.kt"},
        {"records": "elsewhere.sqlite"},
        {"fresh": True},
        {"log": "a.log"},
        {"inputs": ("x.npz",)},
        {"model": ModelRef("zoo", "resnet18", "another name")},
    ],
)
def test_where_things_go_makes_no_difference(changes: dict[str, object]) -> None:
    assert key(**changes) == key()


@pytest.mark.parametrize("constant", ["TVM_VERSION", "ELEMENTARY", "FEATURES", "__version__"])
def test_what_another_version_has_begun_is_other_work(constant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(f"kintune.tuning.front.request.{constant}", "another")
    assert key() != before


def test_what_a_request_has_of_a_configuration_is_alike_by_default() -> None:
    config = TuneConfig()
    names = set(TuneRequest.__struct_fields__) & set(TuneConfig.__struct_fields__) - {"inputs", "output"}
    assert {name: getattr(REQUEST, name) for name in names} == {name: getattr(config, name) for name in names}


def test_what_was_timed_by_another_protocol_is_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    newer = partial(MeasurementProtocol, version=MeasurementProtocol(threads=1).version + 1)
    monkeypatch.setattr("kintune.tuning.front.request.MeasurementProtocol", newer)
    assert key() != before


def test_files_whose_digests_are_known_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = tmp_path / "net.onnx", tmp_path / "x.npz"
    model.write_bytes(b"a model")
    inputs.write_bytes(b"arrays")
    changes = {"model": ModelRef("onnx", str(model), "net"), "calibration": (str(inputs),)}
    digests = {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (model, inputs)}
    before = key(**changes)
    monkeypatch.setattr("kintune.tuning.front.request.sha256_of", None)
    assert key(**changes, digests=digests) == before


def test_other_hardware_is_other_work() -> None:
    keys = {run_key(REQUEST, 2, "a"), run_key(REQUEST, 1, "a"), run_key(REQUEST, 2, "b")}
    assert len(keys) == 3


def test_another_owner_s_is_other_work() -> None:
    assert len({run_key(REQUEST, 2, "a"), run_key(REQUEST, 2, "a", "anna"), run_key(REQUEST, 2, "a", "boris")}) == 3


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.onnx", "copy.onnx", "edited.onnx")]
    for path, content in zip(paths, (b"model", b"model", b"model!"), strict=True):
        path.write_bytes(content)
    original, copied, edited = (key(model=ModelRef("onnx", str(path), path.stem)) for path in paths)
    assert original == copied
    assert original != edited


def test_weights_beside_a_file_belong_to_its_content(tmp_path: Path) -> None:
    path = write_small_onnx(tmp_path / "net.onnx")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="net.data", size_threshold=0)
    model, beside = ModelRef("onnx", str(path), "net", own=True), tmp_path / "net.data"
    before, weights = key(model=model), beside.read_bytes()
    beside.write_bytes(bytes(len(weights)))
    assert key(model=model) != before
    beside.write_bytes(weights)
    assert key(model=model) == before
    beside.unlink()
    assert key(model=model) != before  # the job says what is wrong


@pytest.mark.parametrize("where", [{"device": "cuda"}, {"device": "cuda:1+cuda:2"}, {"target": "cuda -arch=sm_90"}])
def test_several_shapes_on_a_gpu_are_refused_before_anything_begins(where: dict[str, str]) -> None:
    model = ModelRef("onnx", "m.onnx", "m", shapes={"ids": (1, 32)}, more_shapes=({"ids": (1, 64)},))
    with pytest.raises(InputError, match=r"m: several shapes .* for a GPU, tune ids=1x32 and the others one by one"):
        request_of(model, TuneConfig(**where))
    request_of(msgspec.structs.replace(model, more_shapes=()), TuneConfig(**where))
    ranged = msgspec.structs.replace(model, more_shapes=(), ranges={"ids": ((1, 1, 1),)})
    with pytest.raises(InputError, match="several shapes in one result"):
        request_of(ranged, TuneConfig(**where))


@pytest.mark.parametrize(
    ("options", "said"),
    [({"weights": 4}, "quantised for fixed shapes"), ({"other_shapes": "onnxruntime"}, "not beside ranges")],
)
def test_what_ranges_do_not_go_with_is_refused(options: dict[str, Any], said: str) -> None:
    model = ModelRef("onnx", "m.onnx", "m", shapes={"ids": (1, 32)}, ranges={"ids": ((1, 1, 1),)})
    with pytest.raises(InputError, match=said):
        request_of(model, TuneConfig(**options))


def test_each_choice_of_shapes_is_other_work() -> None:
    model = ModelRef("onnx", "m.onnx", "m", shapes={"ids": (1, 32)})
    choices = [(), ({"ids": (1, 64)},), ({"ids": (1, 128)},), ({"ids": (1, 64)}, {"ids": (1, 128)})]
    assert len({key(model=msgspec.structs.replace(model, more_shapes=more)) for more in choices}) == len(choices)
    ranges: list[Any] = [{}, {"ids": ((1, 1, 1),)}, {"ids": ((1, 2, 1),)}, {"ids": ((1, 1, 2),)}, {"ids": ((0, 1, 1),)}]
    assert len({key(model=msgspec.structs.replace(model, ranges=each)) for each in ranges}) == len(ranges)


ONNX_MODEL = ModelRef("onnx", "net.onnx", "net")
PROGRAM = ModelRef("exported", "net.pt2", "net")


def test_a_target_is_kept_as_it_writes_itself(tmp_path: Path) -> None:
    output = str(tmp_path / "net.kt")
    for until, kept in (("2.50ms", "2.5"), (" OnnxRuntime * 0.80", "onnxruntime*0.8"), ("untuned", "untuned")):
        request = request_of(ONNX_MODEL, TuneConfig(until=until, output=output))
        assert (request.options.until, request.options.trials) == (kept, None)


@pytest.mark.parametrize(
    ("until", "model", "config", "line"),
    [
        ("nothing*2", ONNX_MODEL, {}, "there is no baseline 'nothing'"),
        ("0", ONNX_MODEL, {}, "must be more than 0"),
        ("torch*0.8", ONNX_MODEL, {}, "net: torch: the model is not a PyTorch exported program"),
        ("onnxruntime*0.8", PROGRAM, {}, "net: onnxruntime: the model is not an ONNX file"),
        ("onnxruntime*0.8", ONNX_MODEL, {"device": "cuda"}, "other runtimes are not timed on a GPU"),
        ("fastest", ONNX_MODEL, {"target": "cuda"}, "other runtimes are not timed on a GPU"),
    ],
)
def test_a_target_that_can_never_be_told_is_refused(
    until: str, model: ModelRef, config: dict[str, str], line: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=line):
        request_of(model, TuneConfig(until=until, output=str(tmp_path / "net.kt"), **config))


def test_a_runtime_that_is_not_installed_is_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kintune.validate.baselines.open_vino.find_spec", lambda _: None)
    with pytest.raises(InputError, match="openvino: not installed: pip install"):
        check_until("openvino*0.8", ONNX_MODEL, ("onnxruntime", "openvino"))
    check_until("fastest*0.8", ONNX_MODEL, ("onnxruntime", "openvino"))
    with pytest.raises(InputError, match="none is to be compared"):
        check_until("fastest", ONNX_MODEL, ())
    with pytest.raises(InputError, match="openvino is not timed here; there is onnxruntime"):
        check_until("openvino", ONNX_MODEL, ("onnxruntime",))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"max_error": 0.01}, "max_error is for a narrower precision"),
        ({"precision": "auto", "device": "cuda"}, "precision auto: narrower precisions are for CPUs"),
        ({"precision": "half"}, "precision"),
        ({"precision": "int8"}, "precision int8: inputs are needed to find the ranges of the values; give --calibrate"),
        ({"calibrate": "x.npz"}, "calibrate is for a narrower precision: give --precision int8 or auto as well"),
        ({"precision": "bf16", "calibrate": "x.npz"}, "calibrate is for a narrower precision"),
        ({"precision": "int8", "calibrate": "no.npz"}, "the calibration files no.npz does not exist"),
        ({"precision": "auto", "calibrate": "tests"}, "there is no .npz file in this directory"),
        ({"precision": "int8", "calibrate": "x.npz", "device": "cuda"}, "precision int8: narrower precisions are for"),
        ({"precision": "bf16", "max_error": 2.0}, "max_error"),
        ({"precision": "bf16", "metric": "m.py:f"}, "metric and max_drop go together"),
        ({"precision": "bf16", "max_drop": 0.1}, "metric and max_drop go together"),
        ({"metric": "m.py:f", "max_drop": 0.1}, "metric is for a narrower precision"),
        ({"precision": "bf16", "metric": "m.py:f", "max_drop": 0.1, "max_error": 0.1}, "leave one of the two out"),
        ({"precision": "bf16", "metric": "accuracy", "max_drop": 0.1}, "write MODULE:FUNCTION or FILE.py:FUNCTION"),
        ({"precision": "bf16", "metric": "no.py:f", "max_drop": 0.1}, "there is no file no.py"),
        ({"weights": 5}, "weights must be 4 or 8, and is 5"),
        ({"weights": 3}, "weights must be 4 or 8, and is 3"),
        ({"weights": 4, "device": "cuda"}, "weights of 4 bits are for CPUs"),
        ({"weights": 4, "metric": "m.py:f", "max_drop": 0.1}, "leave metric out"),
        ({"weights": 4, "precision": "int8", "calibrate": "x"}, "both quantise the model"),
    ],
)
def test_a_precision_that_makes_no_sense_is_refused(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        request_of(ONNX_MODEL, TuneConfig(output=str(tmp_path / "net.kt"), **config))
    assert said in str(error.value)


@pytest.mark.parametrize("option", ["--calibrate", "--weights", "--other-shapes"])
def test_what_works_on_onnx_graphs_needs_pytorchs_exporter(option: str, tmp_path: Path) -> None:
    (tmp_path / "one.npz").touch()
    options: dict[str, dict[str, Any]] = {
        "--calibrate": {"precision": "int8", "calibrate": str(tmp_path)},
        "--weights": {"weights": 4},
        "--other-shapes": {"other_shapes": "onnxruntime"},
    }
    config = TuneConfig(output=str(tmp_path / "net.kt"), **options[option])
    said = rf"^net: {option} needs onnxscript, PyTorch's exporter to ONNX; first run: pip install 'kintune\[torch\]'$"
    with pytest.raises(OrderError, match=said):
        request_of(ModelRef("exported", "net.pt2", "net"), config)
    assert request_of(ONNX_MODEL, config).output
    assert request_of(ModelRef("exported", "net.pt2", "net"), TuneConfig(output=config.output)).output


def test_calibration_files_are_named_one_by_one(tmp_path: Path) -> None:
    for name in ("b.npz", "a.npz", "a.txt"):
        (tmp_path / name).touch()
    config = TuneConfig(precision="int8", calibrate=str(tmp_path), output=str(tmp_path / "net.kt"))
    assert request_of(ONNX_MODEL, config).calibration == (str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))


def test_a_metric_is_for_files_alone(tmp_path: Path) -> None:
    config = TuneConfig(precision="auto", metric="m.py:f", max_drop=0.1, output=str(tmp_path / "net.kt"))
    with pytest.raises(InputError, match="a metric scores models in files"):
        request_of(ModelRef("zoo", "resnet18", "resnet18"), config)
    with pytest.raises(InputError, match=r"there is no file m\.py"):
        request_of(ModelRef("exported", "net.pt2", "net"), config)


def test_a_metric_is_for_models_without_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The original model has the input, and the tuned one would not: no function could run both."""
    monkeypatch.chdir(tmp_path)
    Path("m.py").touch()
    model = msgspec.structs.replace(ONNX_MODEL, constants={"n": Constant("int64", (), "d")})
    config = TuneConfig(precision="auto", metric="m.py:f", max_drop=0.1, output="net.kt")
    with pytest.raises(InputError, match="has the input n, and the tuned one, which would not; leave out --constant"):
        request_of(model, config)
    assert request_of(ONNX_MODEL, config).options.metric == Metric("m.py", "f", str(tmp_path), 0.1)


def test_a_narrower_result_is_compared_with_narrower_runtimes(tmp_path: Path) -> None:
    wide = request_of(ONNX_MODEL, TuneConfig(output=str(tmp_path / "net.kt"))).options
    assert (wide.precisions, wide.error_budget, wide.compare) == (frozenset(), None, COMPARED)
    narrow = request_of(ONNX_MODEL, TuneConfig(precision="auto", output=str(tmp_path / "net.kt"))).options
    assert (narrow.precisions, narrow.error_budget) == (frozenset({"bf16"}), 0.01)
    assert narrow.compare == (*COMPARED, *COMPARED_NARROW)


def test_denormal_numbers_are_flushed_unless_they_are_to_be_kept(tmp_path: Path) -> None:
    output = str(tmp_path / "net.kt")
    flushing, keeping = (request_of(ONNX_MODEL, TuneConfig(output=output, keep_denormals=k)) for k in (False, True))
    assert (flushing.options.keep_denormals, keeping.options.keep_denormals) == (False, True)
    assert run_key(flushing, 1, "a CPU") != run_key(keeping, 1, "a CPU")


def test_weights_of_fewer_bits_have_an_error_budget(tmp_path: Path) -> None:
    config = TuneConfig(weights=4, max_error=0.1, output=str(tmp_path / "net.kt"))
    options = request_of(ONNX_MODEL, config).options
    assert (options.weights, options.error_budget, options.precisions) == (4, 0.1, frozenset())


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"device": "cuda"}, "isolate is for CPUs"),
        ({"metric": "score.py:score", "max_drop": 0.1}, "isolate and metric do not go together"),
        ({}, "isolate is for models in files; zoo:resnet18 is Kintune's own"),
    ],
)
def test_what_cannot_be_isolated_is_refused(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    kind = "zoo" if not changes else "onnx"
    model = ModelRef(kind, "resnet18", "resnet18")
    (tmp_path / "score.py").write_text("")
    if "metric" in changes:
        changes = {**changes, "metric": f"{tmp_path}/score.py:score", "precision": "bf16"}
    with pytest.raises(InputError, match=line):
        request_of(model, TuneConfig(isolate=True, output=str(tmp_path / "out.kt"), **changes))


def test_isolation_that_is_missing_is_refused_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(
        confinement,
        "layers",
        lambda: (
            ConfinementLayer("namespaces", "", False, ""),
            ConfinementLayer("Landlock", "", True, ""),
            ConfinementLayer("system calls", "", False, "none here", "get them"),
        ),
    )
    model = write_small_onnx(tmp_path / "net.onnx")
    with pytest.raises(InputError, match="cannot be isolated here: system calls: none here, get them"):
        request_of(ModelRef("onnx", str(model), "net"), TuneConfig(isolate=True, output=str(tmp_path / "out.kt")))
