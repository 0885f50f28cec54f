from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from kintune.core.config import JobSpec, Options
from kintune.core.model import ModelRef
from kintune.errors import InputError
from kintune.models.quantisation.quantiser import Quantiser
from kintune.tuning.job import quantising
from kintune.tuning.job.quantising import quantise, split
from tests.support.quantisable import write_inputs, write_network
from tests.support.toy_tools import toy_spec as job_spec


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    path = write_network(tmp_path / "small.onnx")
    return made(job_spec(), tmp_path, path)


def made(spec: JobSpec, folder: Path, path: Path, count: int = 4, **options: Any) -> JobSpec:
    return msgspec.structs.replace(
        spec,
        model=ModelRef("onnx", str(path), "small", own=True),
        output=str(folder / "small.kt"),
        options=Options(trials=1, precision="int8", **{"max_error": 0.5, **options}),
        calibration_files=write_inputs(folder / "inputs", count),
        cores=1,
    )


def with_budget(spec: JobSpec, max_error: float) -> JobSpec:
    return msgspec.structs.replace(spec, options=msgspec.structs.replace(spec.options, max_error=max_error))


def test_a_half_of_the_files_is_held_back() -> None:
    assert split(["a", "b", "c"]) == (("a", "b"), ("c",))
    assert split(["a"]) == (("a",), ("a",))


def test_a_wide_budget_quantises_all_layers(spec: JobSpec) -> None:
    found = quantise(spec)
    assert (found.quantised.products, found.quantised.int8, found.quantised.left) == (4, 4, ())
    assert found.quantised.error is not None
    assert 0.0 < found.quantised.error < 0.5
    assert found.quantised.held_back == 2
    assert found.ref.source == found.path == f"{spec.output}.int8.onnx"
    operators = [node.op_type for node in onnx.load(found.path).graph.node]
    assert operators.count("QuantizeLinear") == 4


def test_a_narrow_budget_leaves_layers_out(spec: JobSpec) -> None:
    everything = quantise(spec).quantised.everything
    assert everything is not None
    found = quantise(with_budget(spec, everything)).quantised
    assert 0 < found.int8 < 4
    assert len(found.left) == 4 - found.int8
    assert found.error is not None
    assert found.error <= 0.9 * everything


def test_where_nothing_fits_the_model_stays_as_it_is(spec: JobSpec) -> None:
    found = quantise(with_budget(spec, 1e-5))
    assert found.quantised.int8 == 0
    assert found.quantised.error is None
    assert found.ref == spec.model


def test_a_budget_that_even_fp32_misses_is_refused(spec: JobSpec) -> None:
    with pytest.raises(InputError, match=r"even in fp32 the outputs of small.onnx move by"):
        quantise(with_budget(spec, 1e-12))


def test_with_one_file_nothing_is_held_back(spec: JobSpec) -> None:
    one = msgspec.structs.replace(spec, calibration_files=spec.calibration_files[:1])
    assert quantise(one).quantised.held_back == 0


def test_other_weights_beside_the_model_make_another_one(spec: JobSpec) -> None:
    path = Path(spec.model.source)
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="small.data", size_threshold=0)
    first = Path(quantise(spec).path).read_bytes()
    beside = path.parent / "small.data"
    beside.write_bytes((np.frombuffer(beside.read_bytes(), np.float32) * np.float32(0.5)).tobytes())
    assert Path(quantise(spec).path).read_bytes() != first


def test_what_an_earlier_process_wrote_is_used(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    first = quantise(spec)
    with monkeypatch.context() as patched:
        patched.setattr(quantising, "Quantiser", _never)
        assert quantise(spec) == first
    assert quantise(with_budget(spec, 0.4)).quantised.int8 == 4  # another budget is another model


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_to_use(
    spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = quantise(spec)
    narrow = with_budget(spec, 0.4)
    with monkeypatch.context() as patched:
        patched.setattr("kintune.tuning.job.quantised_file.os.replace", _never)
        with pytest.raises(AssertionError):
            quantise(narrow)
        assert not Path(f"{spec.output}.int8.onnx.json").exists()
    assert quantise(spec) == first
    assert Path(f"{spec.output}.int8.onnx.json").exists()


def _never(*_: object) -> Quantiser:
    raise AssertionError("nothing is to be quantised again")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"wrong": np.zeros((1, 3, 16, 16), np.float32)}, "x"),
        ({"x": np.zeros((1, 3, 8, 8), np.float32)}, "shape"),
        ({"x": np.full((1, 3, 16, 16), "a")}, "x"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_by_name(spec: JobSpec, arrays: dict[str, Any], said: str) -> None:
    bad = Path(spec.calibration_files[-1])
    np.savez(bad, **arrays)
    with pytest.raises(InputError) as error:
        quantise(spec)
    assert str(bad) in str(error.value)
    assert said in str(error.value)


def test_a_dimension_may_be_bound(tmp_path: Path) -> None:
    path = write_network(tmp_path / "open.onnx", batch="N")
    spec = made(job_spec(), tmp_path, path)
    bound = msgspec.structs.replace(spec.model, shapes={"x": (1, 3, 16, 16)})
    assert quantise(msgspec.structs.replace(spec, model=bound)).quantised.int8 == 4
