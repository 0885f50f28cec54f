from __future__ import annotations

import numpy as np
import pytest

from kintune.errors import ModelError
from kintune.partition.import_region import import_region
from kintune.partition.partition import Partition, partition
from tests.support.partitions import DIGEST, Refusing, onnx_model, parse

pytestmark = pytest.mark.tvm

TEXT = """
    m (float[2, 64] x, float[64, 512] w) => (float[2, 512] y) <float[1] b = {2}> {
        a = Add(x, b)  s = Sigmoid(a)  c = Erf(s)  d = MatMul(c, w)  e = Relu(d)  y = Exp(e)
    }
"""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Partition:
    monkeypatch.setattr("kintune.partition.partition.can_pay", lambda *_: True)
    weight = np.random.default_rng(0).random((64, 512), np.float32)
    return partition(onnx_model(parse(TEXT), {"w": weight}), Refusing("Erf"))


def test_inputs_and_outputs_are_those_of_the_region(found: Partition) -> None:
    for number, (inputs, outputs) in enumerate(((("x",), ("s",)), (("c",), ("y",)))):
        model = import_region(found.marked, found.regions[number], number, "net", DIGEST)
        assert tuple(tensor.name for tensor in model.inputs) == inputs
        assert tuple(tensor.name for tensor in model.outputs) == outputs
    assert [tensor.shape for tensor in model.outputs] == [(2, 512)]
    assert model.name == "net kintune/region1"


def test_regions_have_digests_of_their_own(found: Partition) -> None:
    digests = {import_region(found.marked, region, n, "net", DIGEST).digest for n, region in enumerate(found.regions)}
    other = import_region(found.marked, found.regions[0], 0, "net", "another").digest
    assert len(digests | {other}) == 3
    assert import_region(found.marked, found.regions[0], 0, "net", DIGEST).digest in digests


def test_a_region_that_cannot_be_imported_is_named(found: Partition) -> None:
    node = next(node for node in found.marked.graph.node if node.op_type == "MatMul")
    node.op_type, node.domain = "Wobble", "com.microsoft"
    with pytest.raises(ModelError, match="Wobble"):
        import_region(found.marked, found.regions[1], 1, "net", DIGEST)


def test_nodes_are_those_of_the_graph(found: Partition) -> None:
    model = import_region(found.marked, found.regions[1], 1, "net", DIGEST)
    assert [each.node.op for each in model.graph] == ["MatMul", "Relu", "Exp"]
