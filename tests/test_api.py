from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import kintune as kt
from kintune.errors import InputError, ModelError, OrderError
from tests.support.reports import example_report

if TYPE_CHECKING:
    from tests.conftest import FakeFront

ZOO = "zoo:mobilenet_v1_0.5"

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def test_every_public_name_exists_and_is_documented() -> None:
    for name in kt.__all__:
        value = getattr(kt, name)
        assert isinstance(value, str) or (value.__doc__ and value.__doc__.strip()), name
    assert set(kt.__all__) <= set(dir(kt))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tunes'"):
        kt.tunes  # noqa: B018


def test_importing_and_loading_leave_the_compiler_alone() -> None:
    code = (
        "import sys; import kintune as kt; assert 'click' not in sys.modules; "
        f"kt.load({ZOO!r}); assert not {{'tvm', 'tvm_ffi', 'torch', 'sqlalchemy'}} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def test_shapes_bind_the_inputs(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    model = kt.load(tmp_path / "model.onnx", shapes={"input": (1, 3, 224, 224), "mask": [1]})
    assert model.ref.shapes == {"input": (1, 3, 224, 224), "mask": (1,)}
    assert (model.name, repr(model)) == ("model", "Model('model')")
    assert model.ref.more_shapes == ()


def test_lists_of_shapes_make_one_result_for_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    shapes = {"ids": [(1, 32), (1, 64)], "mask": [[1, np.int64(32)], [1, 64]], "scale": ()}
    combinations = kt.load(tmp_path / "model.onnx", shapes=shapes).ref.combinations
    assert combinations == tuple({"ids": (1, n), "mask": (1, n), "scale": ()} for n in (32, 64))
    with pytest.raises(InputError, match="ids has 2 alternative shapes and mask has 3"):
        kt.load(tmp_path / "model.onnx", shapes={"ids": [(1,), (2,)], "mask": [(1,), (2,), (3,)]})
    with pytest.raises(InputError, match="the shape of 'ids' must be whole numbers"):
        kt.load(tmp_path / "model.onnx", shapes={"ids": (1, -1)})


def test_constants_are_numbers_lists_arrays_or_files(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    np.save(tmp_path / "sizes.npy", np.array([2, 3], np.int32))
    constants = {"a": 2.5, "b": [2, 3], "c": np.array([2, 3], np.int16), "d": tmp_path / "sizes.npy", "e": True}
    ref = kt.load(tmp_path / "model.onnx", constants=constants).ref
    assert {name: (one.dtype, one.shape) for name, one in ref.constants.items()} == {
        "a": ("float64", ()), "b": ("int64", (2,)), "c": ("int64", (2,)), "d": ("int64", (2,)), "e": ("bool", ())
    }  # fmt: skip
    assert ref.constants["b"] == ref.constants["c"] == ref.constants["d"]
    with pytest.raises(InputError, match="the constant x is not"):
        kt.load(tmp_path / "model.onnx", constants={"x": [[1], [2, 3]]})


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(ModelError, match="a dict is not a model"):
        kt.load({})  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"missing\.onnx"):
        kt.load("missing.onnx")


def test_tuning_yields_the_report_and_tells_of_progress(fake_front: FakeFront) -> None:
    seen: list[int] = []
    result = kt.load(ZOO).tune(trials=64, progress=lambda report: seen.append(report.trials))
    assert seen == [1, 2]
    assert result.report == example_report()
    assert repr(result) == "Result('resnet18', 1.08x as fast as onnxruntime (16.2 ms))"
    assert fake_front.requests[0].options.trials == 64


def test_progress_is_shown_unless_it_is_unwanted(fake_front: FakeFront, capsys: pytest.CaptureFixture[str]) -> None:
    kt.load(ZOO).tune(progress=False)
    assert capsys.readouterr() == ("", "")
    kt.load(ZOO).tune()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "2 of 1000 trials" in captured.err


@pytest.mark.parametrize("wrong", [{"trials": 0}, {"minutes": -1.0}, {"until": float("nan")}, {"threads": 0}])
def test_a_senseless_budget_is_refused_before_any_work(fake_front: FakeFront, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        kt.load(ZOO).tune(**wrong)
    assert fake_front.requests == []


def test_what_must_be_done_first_is_not_there_yet(fake_front: FakeFront) -> None:
    assert not any(hasattr(kt.load(ZOO), name) for name in ("run", "evaluate", "save", "build"))
    assert not any(hasattr(kt.load(ZOO).tune(progress=False), name) for name in ("run", "evaluate", "save"))


def test_options_may_come_as_a_configuration(fake_front: FakeFront) -> None:
    config = kt.TuneConfig(trials=8, seed=3)
    kt.load(ZOO).tune(config=config, seed=4, progress=False)
    (request,) = fake_front.requests
    assert (request.options.trials, request.options.seed, request.target) == (8, 4, "native")


@pytest.mark.parametrize("call", ["tune", "compile"])
def test_an_option_that_is_not_there_is_named(call: str) -> None:
    with pytest.raises(TypeError, match="'trails'"):
        getattr(kt.load(ZOO), call)(trails=3)


def test_sets_of_inputs_may_be_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, list[float]]] = []

    def look(request: Any, _: Any) -> Any:
        for path in request.inputs:
            with np.load(path) as arrays:
                seen.append({name: arrays[name].tolist() for name in arrays.files})
        return example_report()

    monkeypatch.setattr("kintune.tuning.front.driver.tune", look)
    model = kt.load(ZOO)
    model.tune(inputs=[{"x": np.zeros(2)}, {"x": np.ones(2)}], progress=False)
    model.compile(inputs={"file": np.ones(1)}, progress=False)  # type: ignore[arg-type]
    assert seen == [{"x": [0.0, 0.0]}, {"x": [1.0, 1.0]}, {"file": [1.0]}]
    nothing: Any
    for nothing in ([], [np.zeros(1)], [{"x": {}}]):
        with pytest.raises(InputError, match="array"):
            model.tune(inputs=nothing, progress=False)
    assert len(seen) == 3


@pytest.mark.tvm
def test_an_executable_that_is_gone_is_named(fake_front: FakeFront) -> None:
    with pytest.raises(InputError, match=r"/models/resnet18\.kt"):
        kt.load(ZOO).tune(progress=False).open()


@pytest.mark.needs("torch")
class TestTorch:
    @pytest.fixture(autouse=True)
    def _cached_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    @pytest.fixture
    def torch(self) -> Any:
        return importlib.import_module("torch")

    def test_a_module_is_exported_for_its_example_inputs(self, torch: Any, tmp_path: Path) -> None:
        model = kt.load(torch.nn.Linear(4, 2), example_inputs=(torch.zeros(1, 4),))
        assert model.ref.kind == "exported"
        assert Path(model.ref.source).is_relative_to(tmp_path)

    def test_a_module_without_example_inputs_says_what_is_missing(self, torch: Any) -> None:
        with pytest.raises(OrderError, match="example_inputs"):
            kt.load(torch.nn.Linear(4, 2))

    def test_shapes_are_not_for_modules(self, torch: Any) -> None:
        with pytest.raises(OrderError, match="example_inputs"):
            kt.load(torch.nn.Linear(4, 2), (torch.zeros(1, 4),), shapes={"x": (1, 4)})
