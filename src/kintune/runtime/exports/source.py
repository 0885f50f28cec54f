"""Opens the `.kt` file that is exported."""

from __future__ import annotations

from pathlib import Path

from kintune.errors import InputError
from kintune.files import check_readable
from kintune.hardware.gpus import is_gpu
from kintune.runtime.package import Package

__all__ = ["open_source"]


def open_source(model: Path) -> tuple[Path, Package]:
    """Returns the absolute path of a model that the runtime can run, on this machine or another, and what it holds.

    Raises:
        InputError: it is missing, damaged or of another format, or only the compiler's virtual machine runs it.
    """
    model = check_readable(model, "the model")
    package = Package.open(model)
    if not package.variants:
        what = "tuned for a GPU" if is_gpu(package.manifest.target) else "made for the compiler's virtual machine"
        raise InputError(
            f"{model}: {what}; exports run on CPUs: export what `kintune tune` or `kintune compile` writes"
        )
    return model, package
