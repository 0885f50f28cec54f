"""Weights of a job's model are quantised within its error budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from kintune.core.config import JobSpec, Options
from kintune.core.measurement_protocol import DeviceType
from kintune.core.stage_results import QUANTISED_FILE
from kintune.models.ref import parse_ref
from tests.models.quantisation.test_weights import write_network

pytestmark = pytest.mark.tvm


def spec_of(folder: Path, bits: int, max_error: float, files: tuple[str, ...] = ()) -> JobSpec:
    from kintune.core.measurement_protocol import MeasurementProtocol

    return JobSpec(
        run_id="r",
        model=parse_ref(str(folder / "network.onnx")),
        device_type=DeviceType("llvm", "x", (), 1, "p"),
        protocol=MeasurementProtocol(threads=1),
        options=Options(weights=bits, max_error=max_error),
        output=str(folder / "network.kt"),
        input_files=files,
    )


def samples(folder: Path, feeds: dict[str, Any], count: int) -> tuple[str, ...]:
    names = []
    for number in range(count):
        draw = np.random.default_rng(number)
        path = folder / f"{number}.npz"
        np.savez(path, **{**feeds, "x": draw.standard_normal((2, 256)).astype(np.float32)})
        names.append(str(path))
    return tuple(names)


def test_everything_is_quantised_where_the_budget_allows_it(tmp_path: Path) -> None:
    from kintune.tuning.job.quantising_weights import quantise_weights

    feeds = write_network(tmp_path / "network.onnx")
    made = quantise_weights(spec_of(tmp_path, 4, 0.5, samples(tmp_path, feeds, 4)))
    assert (made.quantised.products, made.quantised.int8, made.quantised.left) == (3, 3, ())
    assert made.quantised.held_back == 2
    assert made.quantised.bits == 4
    assert made.quantised.error is not None
    assert 0 < made.quantised.error < 0.5
    assert made.ref.source == made.path
    before = Path(made.path).stat().st_mtime_ns
    assert quantise_weights(spec_of(tmp_path, 4, 0.5, samples(tmp_path, feeds, 4))) == made
    assert Path(made.path).stat().st_mtime_ns == before


def test_layers_are_left_out_until_the_error_fits(tmp_path: Path) -> None:
    from kintune.tuning.job.quantising_weights import quantise_weights

    write_network(tmp_path / "network.onnx")
    everything = quantise_weights(spec_of(tmp_path, 4, 0.9)).quantised.everything
    assert everything is not None
    made = quantise_weights(spec_of(tmp_path, 4, everything)).quantised
    assert 0 < made.int8 < 3
    assert len(made.left) == 3 - made.int8
    assert made.error is not None
    assert made.error <= 0.9 * everything
    nodes = [node.op_type for node in onnx.load(tmp_path / f"network.kt{QUANTISED_FILE}").graph.node]
    assert nodes.count("MatMulNBits") == made.int8


def test_a_budget_too_small_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    from kintune.tuning.job.quantising_weights import quantise_weights

    write_network(tmp_path / "network.onnx")
    spec = spec_of(tmp_path, 4, 1e-6)
    made = quantise_weights(spec)
    assert made.quantised.int8 == 0
    assert made.ref == spec.model
    assert not Path(f"{spec.output}{QUANTISED_FILE}").exists()
    assert msgspec.json.decode(msgspec.json.encode(made.quantised), type=type(made.quantised)) == made.quantised
