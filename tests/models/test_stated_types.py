"""Types of what is computed by operators that ONNX knows nothing of."""

from __future__ import annotations

import onnx
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto

from kintune.models.stated_types import stated_types
from kintune.models.unrolling import unroll
from tests.models.test_unrolling import written_out


def parsed(text: str) -> ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]> {text}')


def test_onnxruntime_says_what_its_own_operators_compute() -> None:
    model = parsed("own (float16[2, 3] x) => (y) { a = com.microsoft.QuickGelu (x)  y = Shape (a) }")
    found = stated_types(model)["a"].type.tensor_type
    assert found.elem_type == TensorProto.FLOAT16
    assert [dim.dim_value for dim in found.shape.dim] == [2, 3]


def test_of_what_neither_takes_nothing_is_known() -> None:
    found = stated_types(parsed("own (float[2, 3] x) => (y) { a = com.microsoft.Nothing (x)  y = Identity (a) }"))
    assert "a" not in found


def test_a_scan_behind_such_an_operator_is_written_out() -> None:
    model = parsed("""scanned (float[3] s, float[5, 3] b) => (float[3] t) {
        a = com.microsoft.QuickGelu (b)
        t = Scan <num_scan_inputs = 1, body = step (float[3] u, float[3] q) => (float[3] v) { v = Add (u, q) }> (s, a)
    }""")
    assert unroll(model, 17) is not None
    written_out(model)


@pytest.mark.tvm
@pytest.mark.parametrize("is_named", [False, True])
def test_a_loss_behind_such_an_operator_is_imported(samples: object, is_named: bool) -> None:
    """Also where the simplified graph names the tensor, and says nothing of its type."""
    from kintune.models.import_onnx import import_onnx
    from kintune.models.onnx import read

    model = parsed("""loss (float[4, 3] x, int64[4] at) => (float y) {
        a = com.microsoft.QuickGelu (x)
        y = NegativeLogLikelihoodLoss (a, at)
    }""")
    simplified = read(samples.write(model), {})  # type: ignore[attr-defined]
    simplified.proto.graph.value_info.extend([ValueInfoProto(name="a")] * is_named)
    import_onnx(simplified)
