"""Opens PyTorch exported programs, and fixes the shapes of their inputs.  Does not import TVM."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from kintune.core.dtypes import numpy_dtype
from kintune.core.model import Constant, ModelRef, Tensor
from kintune.errors import ModelError, cause_line
from kintune.models.constants import fit_constant
from kintune.models.digest import exported_digest
from kintune.models.quiet import quiet
from kintune.models.shapes import Dimension, resolve, unknown_constant, with_constants
from kintune.models.torch_export import require_torch

if TYPE_CHECKING:
    import torch

__all__ = [
    "declared_shapes",
    "digest_of_program",
    "dimensions",
    "exported_inputs",
    "fit_constants",
    "fixed_inputs",
    "open_program",
    "output_names",
    "placeholders",
]

_ENDLESS = 1 << 30  # from here on, the end of a range is one that PyTorch has chosen


def exported_inputs(ref: ModelRef) -> tuple[Tensor, ...]:
    """Return the inputs of an exported program, with fixed shapes.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when the file is damaged, or a constant does not fit; `ShapeError` where a shape is missing or
            wrong.
    """
    require_torch()
    path = Path(ref.source)
    digest_of_program(path, ref.shapes, ref.constants)
    with quiet():
        program = open_program(path)
        values = fit_constants(str(path), program, ref.constants)
        inputs = fixed_inputs(str(path), program, ref.shapes, values)
    return tuple(tensor for tensor in inputs if tensor.name not in values)


def declared_shapes(ref: ModelRef) -> dict[str, tuple[tuple[Dimension, ...], dict[int, range], bool]]:
    """The shapes of inputs as the program declares them, the ranges of their axes, and whether they hold integers.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when the file is damaged.
    """
    require_torch()
    path = Path(ref.source)
    digest_of_program(path, ref.shapes, ref.constants)
    with quiet():
        program = open_program(path)
    limits = {str(symbol): each for symbol, each in program.range_constraints.items()}
    found = {}
    for name, node in placeholders(program).items():
        shape = dimensions(node)
        ranges = {axis: _range_of(limits[one]) for axis, one in enumerate(shape) if one in limits}
        integers = not node.meta["val"].dtype.is_floating_point
        found[name] = shape, {axis: each for axis, each in ranges.items() if each is not None}, integers
    return found


def _range_of(limits: Any) -> range | None:
    """The range of an open dimension; None where it has no end of its own."""
    try:
        least, greatest = max(int(limits.lower), 1), int(limits.upper)
    except (OverflowError, TypeError, ValueError):  # infinite
        return None
    return range(least, greatest + 1) if least < greatest < _ENDLESS else None


def digest_of_program(path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant]) -> str:
    """The digest of a program in a file, with shapes and constants.

    Raises:
        ModelError: it is no archive that PyTorch wrote.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch does not compress members; a compressed one could expand to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelError(f"{path}: is not an archive that torch.export.save wrote")
        return exported_digest(path, shapes, constants)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is not a PyTorch exported program, or is incomplete: {cause_line(error)}") from error


def open_program(path: Path) -> torch.export.ExportedProgram:
    """Read an exported program with PyTorch.

    Raises:
        ModelError: PyTorch cannot read it.
    """
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # the reader raises exceptions of many types
        raise ModelError(f"{path}: PyTorch cannot read this exported program: {cause_line(error)}") from error


def fit_constants(
    label: str, program: torch.export.ExportedProgram, constants: Mapping[str, Constant]
) -> dict[str, NDArray[Any]]:
    """The values of constants in the types and shapes of the program's inputs.

    Raises:
        ModelError: when a constant is not for an input, or does not fit it.
    """
    nodes = placeholders(program)
    fitted: dict[str, NDArray[Any]] = {}
    for name, given in constants.items():
        if name not in nodes:
            raise unknown_constant(label, name, list(nodes))
        dtype = numpy_dtype(str(nodes[name].meta["val"].dtype).removeprefix("torch."))
        fitted[name] = fit_constant(label, name, given, dtype, dimensions(nodes[name]))
    return fitted


def fixed_inputs(
    label: str,
    program: torch.export.ExportedProgram,
    shapes: Mapping[str, tuple[int, ...]],
    constants: Mapping[str, NDArray[Any]],
) -> tuple[Tensor, ...]:
    """The inputs that are tensors, with all sizes fixed.

    Raises:
        ShapeError: for an open dimension that is not bound, or a shape that contradicts the program.
    """
    nodes = placeholders(program)
    declared = {name: dimensions(node) for name, node in nodes.items()}
    fixed = resolve(label, declared, with_constants(label, shapes, constants))
    return tuple(
        Tensor(name, fixed[name], str(node.meta["val"].dtype).removeprefix("torch.")) for name, node in nodes.items()
    )


def placeholders(program: torch.export.ExportedProgram) -> dict[str, Any]:
    """The nodes of the inputs that are tensors, by name."""
    import torch

    names = {name for name in program.graph_signature.user_inputs if isinstance(name, str)}
    return {
        node.name: node
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in names and isinstance(node.meta.get("val"), torch.Tensor)
    }


def dimensions(node: Any) -> tuple[Dimension, ...]:
    """The shape of an input; open dimensions by their names."""
    return tuple(size if isinstance(size, int) else str(size) for size in node.meta["val"].shape)


def output_names(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the outputs that are tensors, by the structure that `forward` returns: keys, fields, or positions."""
    from torch.export.graph_signature import OutputKind, TensorArgument
    from torch.utils import _pytree as pytree

    arguments = [s.arg for s in program.graph_signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    structure = program.call_spec.out_spec
    kept = [isinstance(argument, TensorArgument) for argument in arguments]
    if len(arguments) == 1 or structure is None:
        return ["output"] * sum(kept)
    leaves, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(len(kept))), structure))
    paths = [".".join(_key_text(key) for key in keys) for keys, _ in leaves]
    named = [text if text and not text[0].isdigit() else f"output_{text or i}" for i, text in enumerate(paths)]
    return [name for name, tensor in zip(named, kept, strict=True) if tensor]


def _key_text(key: Any) -> str:
    """The text of one step of a path into a structure."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
