"""Runs networks that Kintune has tuned.

    import kintune_runtime

    with kintune_runtime.open("model.kt") as model:
        outputs = model.run(image)

It needs numpy alone.  `Executable` is an opened file, `Context` what one caller needs to run it beside others.  What
runs partly in onnxruntime is a `HybridExecutable`, and needs onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import InputError, KintuneError, RunError
from .version import __version__

if TYPE_CHECKING:
    from .executable import Context, Evaluation, Executable, Tensor, Variant, open
    from .hybrid import HybridContext, HybridExecutable

__all__ = [
    "Context",
    "Evaluation",
    "Executable",
    "HybridContext",
    "HybridExecutable",
    "InputError",
    "KintuneError",
    "RunError",
    "Tensor",
    "Variant",
    "__version__",
    "open",
]


def __getattr__(name: str) -> Any:
    if name in ("HybridContext", "HybridExecutable"):
        from . import hybrid

        return getattr(hybrid, name)
    if name in __all__:
        from . import executable

        return getattr(executable, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
