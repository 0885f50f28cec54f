"""Prepares an exported program for conversion: fixes all sizes, and decomposes composite operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from kintune.errors import ModelError
from kintune.models.exported_program import dimensions, fixed_inputs, placeholders
from kintune.models.torch_converters import recurrent

__all__ = ["input_names", "prepare"]

_KEPT: tuple[str, ...] = ("scaled_dot_product_attention.default", "linear.default", "matmul.default", "roll.default")
_KEPT += tuple(f"{kind}_pad{n}d.default" for kind in ("reflection", "replication") for n in (1, 2, 3))
_WRITTEN_OUT: tuple[str, ...] = ("grid_sampler_2d", "upsample_bicubic2d", "upsample_trilinear3d")
_WRITTEN_OUT += ("index_add", "triu_indices", "tril_indices", "native_dropout")
_WRITTEN_OUT += ("affine_grid_generator", "nan_to_num", "upsample_nearest3d")
_WRITTEN_OUT += ("ldexp", "as_strided_copy", "narrow_copy", "permute_copy", "unbind_copy")
_WRITTEN_OUT += tuple(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3))


def prepare(
    label: str,
    program: torch.export.ExportedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, NDArray[Any]],
) -> Any:
    """Returns `program` with all sizes fixed, decomposed to core operators and a few larger ones that have converters.

    Raises:
        ShapeError: for an open dimension that is not bound, or a shape that contradicts the program.
        ModelError: for an open input that is no tensor, for shapes with which the export fails, and for a program that
            changes an input or state that it reads.
    """
    fixed = {tensor.name: tensor.shape for tensor in fixed_inputs(label, program, shapes, constants)}
    if any(isinstance(size, str) for node in placeholders(program).values() for size in dimensions(node)):
        program = _specialised(label, program, fixed)
    program = program.run_decompositions(_decompositions(_recurrent(program)))
    _refuse_changes(label, program)
    return program


def input_names(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the inputs that are tensors; numbers were fixed when the program was exported."""
    return list(placeholders(program))


def _specialised(
    label: str, program: torch.export.ExportedProgram, fixed: Mapping[str, tuple[int, ...]]
) -> torch.export.ExportedProgram:
    """Exports the program again for inputs of these shapes, so that all sizes that follow from them are numbers."""
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    leaves: list[Any] = []
    for spec in program.graph_signature.input_specs:
        if spec.kind != torch.export.graph_signature.InputKind.USER_INPUT:
            continue
        if isinstance(spec.arg, TensorArgument):
            leaves.append(torch.zeros(fixed[spec.arg.name], dtype=nodes[spec.arg.name].meta["val"].dtype))
        elif hasattr(spec.arg, "value"):
            leaves.append(spec.arg.value)
        else:
            raise ModelError(f"{label}: input {spec.arg.name} is a number left open; export it with a fixed one")
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    try:
        return torch.export.export(program.module(), args, kwargs)
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ModelError(
            f"{label}: does not work with these shapes: {(lines or ['no reason given'])[0][:300]}"
        ) from error


def _recurrent(program: torch.export.ExportedProgram) -> tuple[str, ...]:
    """The operators of recurrent layers all of whose nodes in the program can be converted."""
    nodes: dict[str, list[bool]] = {}
    for node in program.graph.nodes:
        if (name := str(getattr(node.target, "__name__", ""))) in recurrent.CONVERTERS:
            nodes.setdefault(name, []).append(recurrent.is_kept(node))
    return tuple(name for name, kept in nodes.items() if all(kept))


def _decompositions(kept: Sequence[str]) -> Any:
    """The table of decompositions, without those of `kept` and of operators that always have converters."""
    aten = torch.ops.aten
    table = torch.export.default_decompositions()
    for name in (*_KEPT, *kept):
        packet, overload = name.split(".")
        table.pop(getattr(getattr(aten, packet), overload), None)
    table.update(torch._decomp.get_decompositions([getattr(aten, n) for n in _WRITTEN_OUT if hasattr(aten, n)]))
    return table


def _refuse_changes(label: str, program: torch.export.ExportedProgram) -> None:
    """Refuse programs that change an input, or read state that they change: a compiled program keeps no state."""
    signature = program.graph_signature
    mutated = signature.user_inputs_to_mutate
    if mutated:
        name = next(iter(mutated.values()))
        raise ModelError(f"{label}: changes its input {name} in place; return the new value instead")
    buffers = set(signature.buffers_to_mutate.values())
    if not buffers:
        return
    users = {name for name, buffer in signature.inputs_to_buffers.items() if buffer in buffers}
    output = next(node for node in program.graph.nodes if node.op == "output")
    values = [
        value
        for spec, value in zip(signature.output_specs, output.args[0], strict=True)
        if spec.kind == OutputKind.USER_OUTPUT and isinstance(value, torch.fx.Node)
    ]
    seen: set[Any] = set()
    while values:
        node = values.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name in users:
            raise ModelError(
                f"{label}: reads and changes its buffer {signature.inputs_to_buffers[node.name]}, which a compiled "
                "program does not keep; pass the state as an input and return the new one"
            )
        values.extend(node.all_input_nodes)
