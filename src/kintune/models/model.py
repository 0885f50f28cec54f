"""A model, imported: what the rest of Kintune works on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import tvm
    from numpy.typing import NDArray

    from kintune.core.model import Constant, IndexCheck, Tensor
    from kintune.models.source_graph import GraphNode

__all__ = ["ImportedModel"]


@dataclass(frozen=True)
class ImportedModel:
    """An imported model.

    `module` holds one Relax function, `main`.  Its parameters are `inputs` in order, and its attribute `num_input` is
    their number.  Weights are constants in its body: lowering folds them first, and makes parameters of what is left.
    It returns one tensor when there is one output and no computed index to check, else a tuple: the outputs, and then
    the indices that `checks` are about.

    `inputs` and `outputs` have the model's own names and fixed shapes.  `digest` is the digest of the model's content
    (graph, weights and shapes), the same on every machine.  `onnx_path` is the file to run for comparison, None when
    the model came from PyTorch; then `exported_path` is the exported program.  `opset` is the operator set of the ONNX
    file, or 0.  `constants` has the inputs of the file which have become constants here, in the file's types and
    shapes.

    `sources` maps the name of a variable in `main` to the name of the tensor that it holds or helps to compute.
    `nodes` maps that tensor to the user's node, as messages name it (`Conv 'layer1/conv'`).  Unknown ones are left out.
    `graph` has the nodes of the user's graph in the file's order.  `positions` has the values of further parameters of
    `main`, the last ones, which are weights that lowering does not fold.
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
    positions: tuple[NDArray[Any], ...] = ()
