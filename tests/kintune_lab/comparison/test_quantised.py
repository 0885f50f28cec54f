from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from kintune.core.model import Tensor
from kintune.errors import InputError, ModelError
from kintune_lab.comparison.quantised import DRAWN, calibration_files, write_quantised
from tests.support.quantisable import INPUT, write_inputs, write_network

TENSORS = (Tensor("x", INPUT, "float32"),)


def test_sets_of_inputs_are_drawn_where_there_are_none(tmp_path: Path) -> None:
    files = calibration_files(DRAWN, TENSORS, tmp_path / "inputs", seed=1)
    assert len(files) == 8
    first, second = (np.load(file)["x"] for file in files[:2])
    assert first.shape == INPUT
    assert not np.array_equal(first, second)


def test_those_of_the_user_are_found_or_named(tmp_path: Path) -> None:
    write_inputs(tmp_path / "samples", 3)
    assert len(calibration_files(str(tmp_path / "samples"), TENSORS, tmp_path, seed=1)) == 3
    with pytest.raises(InputError, match="the calibration files"):
        calibration_files(str(tmp_path / "none"), TENSORS, tmp_path, seed=1)


def test_the_file_is_what_the_quantiser_makes_by_default(tmp_path: Path) -> None:
    network = write_network(tmp_path / "net.onnx")
    files = calibration_files(DRAWN, TENSORS, tmp_path / "inputs", seed=1)
    written = tmp_path / "int8.onnx"
    write_quantised(network, TENSORS, files, written)
    operators = [node.op_type for node in onnx.load(written).graph.node]
    assert operators.count("QuantizeLinear") > 4  # what is added is quantised, too
    assert not list(tmp_path.glob("kintune-quantised-*"))
    with pytest.raises(ModelError, match="is quantised already"):
        write_quantised(written, TENSORS, files, tmp_path / "again.onnx")
