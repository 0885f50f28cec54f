"""Exports PyTorch modules into files, so that every process can read the model.  Does not import TVM."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from kintune.core.model import ModelRef
from kintune.errors import ModelError, OrderError
from kintune.hardware.software import allow_torch
from kintune.models.digest import exported_digest
from kintune.models.ref import EXPORTED

if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import torch

__all__ = ["EXPORTER", "export_module", "require_exporter", "require_torch"]

EXPORTER = "onnxscript"
"""The package with which PyTorch exports programs to ONNX."""


def require_torch() -> ModuleType:
    """Imports PyTorch and returns it.

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


def require_exporter(why: str) -> None:
    """Check that PyTorch's exporter to ONNX can be used; `why` begins the message, and names the model.

    Raises:
        OrderError: it cannot, saying how to install it.
    """
    if find_spec(EXPORTER) is None:
        raise OrderError(f"{why} needs {EXPORTER}, PyTorch's exporter to ONNX; first run: pip install 'kintune[torch]'")


def export_module(
    module: torch.nn.Module,
    example_inputs: Sequence[Any] | Mapping[str, Any],
    directory: Path | str | None = None,
    name: str = "",
) -> ModelRef:
    """Export `module` for inputs shaped like `example_inputs` into a .pt2 file in `directory`, and return its name.

    `example_inputs` are the tensors that its `forward` takes: a sequence by position, or a mapping by keyword.
    `directory` is by default a folder in the user's cache.  The module is exported in evaluation mode, and then gets
    back the mode it had.  The file is named after the model and the digest of its content.

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
