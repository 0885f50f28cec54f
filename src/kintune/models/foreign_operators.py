"""Operators that no importer knows, and graphs in which they do all of the work.  Does not import TVM."""

from __future__ import annotations

import re

from onnx import ModelProto, NodeProto

from kintune.models.onnx_nodes import DEFAULT_DOMAINS, nodes

__all__ = ["ONNXRUNTIME_DOMAIN", "is_foreign", "is_only_foreign"]

ONNXRUNTIME_DOMAIN = "com.microsoft"
"""The domain of ONNX Runtime's own operators, of which some can be imported."""

_FEW = 5  # nodes, which can gain no more than the call of a compiled region costs
_LASTING = re.compile("Conv|MatMul|Gemm|Attention|Einsum|LSTM|GRU|RNN|If|Loop|Scan")


def is_foreign(node: NodeProto) -> bool:
    """Return whether a node is of another domain than ONNX's own and ONNX Runtime's, such as a forest of trees."""
    return node.domain not in (*DEFAULT_DOMAINS, ONNXRUNTIME_DOMAIN)


def is_only_foreign(model: ModelProto) -> bool:
    """Return whether a graph has foreign operators, and hardly any others: onnxruntime runs it as a whole."""
    own = [node for node in nodes(model) if not is_foreign(node) and node.op_type != "Constant"]
    has_foreign = any(map(is_foreign, nodes(model)))
    return has_foreign and len(own) <= _FEW and not any(_LASTING.search(node.op_type) for node in own)
