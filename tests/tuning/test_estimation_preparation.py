from __future__ import annotations

from pathlib import Path

import pytest

from kintune.errors import InputError
from kintune.models.ref import parse_ref
from kintune.tuning.estimation import preparing


@pytest.mark.tvm
def test_a_model_is_split_as_for_tuning_and_the_next_one_too(tmp_path: Path) -> None:
    from tests.support.tiny_network import make_tiny_network

    network = make_tiny_network(tmp_path)
    with preparing(threads=1) as prepare:
        first, again = (prepare(parse_ref(str(network.onnx))) for _ in range(2))
        (tmp_path / "bad.onnx").write_bytes(b"no model")
        with pytest.raises(InputError, match=r"bad\.onnx"):
            prepare(parse_ref(str(tmp_path / "bad.onnx")))
    assert first == again
    assert {subgraph.operator for subgraph in first.subgraphs if subgraph.tunable} == {"dense"}


@pytest.mark.tvm
def test_a_target_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError), preparing(target="no such target", threads=1):
        pytest.fail("it did not refuse")
