"""Models that other runtimes can open."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.model import ModelRef
from kintune.errors import ModelError
from kintune.models.onnx_path import onnx_path_of
from kintune.models.ref import EXPORTED, ONNX, parse_ref


def test_an_onnx_file_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    assert onnx_path_of(ModelRef(ONNX, str(path), "m")) == path


def test_a_network_of_the_zoo_is_written(tmp_path: Path) -> None:
    path = onnx_path_of(parse_ref("zoo:mobilenet_v1_0.5"), tmp_path)
    assert path.parent == tmp_path
    assert path.stat().st_size > 1_000_000


def test_what_comes_from_pytorch_has_none() -> None:
    with pytest.raises(ModelError, match="export the model to ONNX"):
        onnx_path_of(ModelRef(EXPORTED, "m.pt2", "m"))
