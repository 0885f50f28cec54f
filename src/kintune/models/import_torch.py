"""From a PyTorch exported program to a Relax module."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kintune.errors import ModelError, cause_line
from kintune.models.constants import store_constant
from kintune.models.digest import exported_digest
from kintune.models.index_guard import guard_indices
from kintune.models.model import Model, signature
from kintune.models.quiet import quiet

if TYPE_CHECKING:
    import torch

    from kintune.core.payloads import Constant, ModelRef
import os
import re
import warnings
from collections.abc import Sequence

import platformdirs

from kintune.core.payloads import ModelRef
from kintune.errors import OrderError
from kintune.hardware.software import allow_torch
from kintune.models.ref import EXPORTED

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import torch

__all__ = ["export_module", "load_exported", "require_torch"]


def load_exported(ref: ModelRef) -> Model:
    """Import the exported program in the file that `ref` names; weights become constants.

    PyTorch's own reader opens the file, and it may unpickle parts of it: such files are taken from the user alone,
    never from a network.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when the file is damaged or the program cannot be imported; `UnsupportedOperators` lists all
            operators that stand in the way.
        ShapeError: an open dimension that is not bound, or a shape that contradicts the program.
    """
    require_torch()
    # They need PyTorch, which is known to be there only now.
    from kintune.models.torch_converters.prepare import fit_constants, input_names, output_names, prepare
    from kintune.models.torch_converters.program import translate

    path = Path(ref.source)
    label = str(path)
    digest = _digest(path, ref.shapes, ref.constants)
    with quiet():
        try:
            program = _open(path)
            values = fit_constants(label, program, ref.constants)
            program = prepare(label, program, ref.shapes, values)
            names = [name for name in input_names(program) if name not in values], output_names(program)
            imported = translate(label, program, values)
        except ModelError:
            raise
        except Exception as error:  # reader and importer raise whatever they stumble over
            raise ModelError(f"{path}: cannot be imported: {cause_line(error)}") from error
    inputs, outputs = signature(label, imported.module, *names)
    guarded = guard_indices(imported.module, inputs, imported.sources, imported.nodes)
    return Model(
        name=ref.name,
        digest=digest,
        module=guarded.module,
        inputs=inputs,
        outputs=outputs,
        exported_path=str(path),
        sources=guarded.sources,
        nodes=imported.nodes,
        constants={name: store_constant(name, array, typed=True) for name, array in values.items()},
        checks=guarded.checks,
    )


def _digest(path: Path, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, Constant]) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            # PyTorch stores members as they are; a compressed one could unfold to any size.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ModelError(f"{path}: is not an archive that torch.export.save wrote")
        return exported_digest(path, shapes, constants)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path}: is not a PyTorch exported program, or is incomplete: {cause_line(error)}") from error


def _open(path: Path) -> torch.export.ExportedProgram:
    import torch

    try:
        return torch.export.load(path)
    except Exception as error:  # the reader raises whatever it stumbles over
        raise ModelError(f"{path}: PyTorch cannot read this exported program: {cause_line(error)}") from error


def require_torch() -> ModuleType:
    """PyTorch, if it is installed.

    Raises:
        OrderError: when it is not, saying how to install it.
    """
    allow_torch()
    try:
        import torch
    except ImportError as error:
        raise OrderError("PyTorch models need PyTorch; first run: pip install 'kintune[torch]'") from error
    installed: ModuleType = torch
    return installed


def export_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    directory: Path | str | None = None,
    name: str = "",
) -> ModelRef:
    """Export `module` for inputs shaped like `example_inputs` into a .pt2 file in `directory`.

    `example_inputs` are the tensors that its `forward` takes: a sequence by position, or a mapping by keyword;
    `directory` is the user's cache unless told otherwise.  The module is exported as it behaves in evaluation, and left
    in the mode it was in.  The file is named after the model and its content.

    Raises:
        OrderError: when PyTorch is not installed.
        ModelError: when PyTorch cannot export the module; its reason is in the message.
    """
    torch = require_torch()
    label = name or re.sub(r"\W+", "_", type(module).__name__).lower()
    args, kwargs = ((), dict(example_inputs)) if isinstance(example_inputs, Mapping) else (tuple(example_inputs), {})
    folder = Path(directory) if directory is not None else Path(platformdirs.user_cache_dir("kintune")) / "exported"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{label}-{os.getpid()}.pt2"
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.export.export(module, args, kwargs)
            torch.export.save(program, temporary)
        path = folder / f"{label}-{exported_digest(temporary, {})[:12]}.pt2"
        temporary.replace(path)
    except Exception as error:  # the exporter raises whatever the module's own code does
        reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ModelError(f"{label}: PyTorch cannot export this module: {reason[:300]}") from error
    finally:
        temporary.unlink(missing_ok=True)
        for part, training in modes.items():
            part.training = training
    return ModelRef(kind=EXPORTED, source=str(path.absolute()), name=label)
