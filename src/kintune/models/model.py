"""A model, imported: what the rest of Kintune works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tvm

    from kintune.core.model import Constant, IndexCheck, Tensor
    from kintune.models.source_graph import GraphNode

__all__ = ["ImportedModel"]


@dataclass(frozen=True)
class ImportedModel:
    """An imported model.

    `module` holds one Relax function `main`, whose parameters are `inputs` in order and whose weights are constants in
    its body, so that lowering may fold them first and turn what is left into parameters afterwards; its attribute
    `num_input` is the number of inputs.  It returns one tensor when there is one output and no computed index to check,
    else a tuple: the outputs, and then the indices that `checks` are about.

    `inputs` and `outputs` have the model's own names and fixed shapes.  `digest` is the digest of the model's content
    (graph, weights and shapes), the same on every machine.  `onnx_path` is the file to run for comparison, None when
    the model came from PyTorch; `opset` is its operator set, or 0.  `constants` has the inputs of that file which have
    become constants here, in its own types and shapes.

    `sources` leads from the names of variables in `main` to the ONNX tensor that they hold or help to compute, and
    `nodes` from there to the user's node, as messages name it (`Conv 'layer1/conv'`); both are empty where unknown.
    `graph` has the nodes of the user's graph in its order, as the file has them.
    """

    name: str
    digest: str
    module: tvm.IRModule
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    onnx_path: str | None = None
    exported_path: str | None = None
    opset: int = 0
    sources: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, str] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    checks: tuple[IndexCheck, ...] = ()
    graph: tuple[GraphNode, ...] = ()
