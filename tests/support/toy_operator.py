"""Everything that knows operators, with a file of two toy operators in the library.

    python -m tests.support.toy_operator

writes a JSON document of what each says of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from onnx import TensorProto, helper, save

TOY = """
from tvm import relax

from kintune.models.converters.node import Node
from kintune.models.converters.registration import MICROSOFT, OnnxOperator


def _repeated(node: Node) -> relax.Expr:
    return relax.op.tile(node.required(0), [int(node.constant(1))])


OPERATORS = (
    OnnxOperator(
        "Toy", _repeated, domain=MICROSOFT, constants={1: "repeats"}, types={0: ("float32",)},
        refused={"sideways": "sideways is not supported"},
    ),
    OnnxOperator("RegexFullMatch", "it matches toys"),
)
"""


def _imported(folder: Path, dtype: int, constant: bool, **attributes: Any) -> str:
    """The shape of a toy node's result, or why it is refused."""
    from kintune.errors import ModelError
    from kintune.models.importer import load
    from kintune.models.ref import parse_ref

    inputs = [helper.make_tensor_value_info("x", dtype, [3])]
    repeats = helper.make_tensor("n", TensorProto.INT64, [], [2])
    if not constant:
        inputs.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    graph = helper.make_graph(
        [helper.make_node("Toy", ["x", "n"], ["y"], domain="com.microsoft", **attributes)],
        "toy",
        inputs,
        [helper.make_tensor_value_info("y", dtype, None)],
        [repeats] if constant else [],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=10), folder / "toy.onnx")
    try:
        module = load(parse_ref(str(folder / "toy.onnx"))).module
    except ModelError as error:
        return str(error).partition("imported: ")[2]
    return str(module["main"].ret_ty)


def main() -> None:
    """Write what is found."""
    from kintune.models import converters

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "toys.py").write_text(TOY)
        converters.__path__.append(place)
        from kintune.models.converters.library import operators
        from kintune.service.known_operators import left_to_onnxruntime
        from kintune_lab.fuzz.schemas import drawn_operators
        from tests.support.models_page import declared_part

        left = left_to_onnxruntime({"com.microsoft.Toy": 1, "com.microsoft.Toyed": 1, "RegexFullMatch": 1})
        drawn = "RegexFullMatch" in dict(drawn_operators(20))
        without_tvm = "tvm" not in sys.modules
        found = {
            "left": list(left),
            "drawn": drawn,
            "without_tvm": without_tvm,
            "page": [line for line in declared_part(operators()).splitlines() if "Toy" in line or "toys" in line],
            "imported": [
                _imported(folder, TensorProto.FLOAT, True),
                _imported(folder, TensorProto.FLOAT, False),
                _imported(folder, TensorProto.INT32, True),
                _imported(folder, TensorProto.FLOAT, True, sideways=1),
                _imported(folder, TensorProto.FLOAT, True, sideways=0),
            ],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
