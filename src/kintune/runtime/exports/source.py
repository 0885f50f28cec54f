"""Opens the `.kt` file that is exported: its variants must be for one kind of machine, whose library goes with it."""

from __future__ import annotations

from pathlib import Path

from kintune.errors import InputError
from kintune.files import check_readable
from kintune.runtime.hybrid_package import HybridPackage
from kintune.runtime.package import Package, read_manifests

__all__ = ["open_source"]


def open_source(model: Path) -> tuple[Path, Package | HybridPackage]:
    """Returns the absolute path of a model that the runtime can run, on this machine or another, and what it holds.

    Raises:
        InputError: it is missing, damaged or of another format, only the compiler's virtual machine runs it, or it has
            variants for machines of several kinds.
    """
    model = check_readable(model, "the model")
    manifests = read_manifests(model)
    package = Package.open(model) if manifests[0].hybrid is None else HybridPackage.open(model)
    machines = sorted({manifest.machine for manifest in manifests})
    if len(machines) > 1:
        raise InputError(
            f"{model}: built for {' and '.join(machines)}, and an export is for one of them; export each of the files"
            " that it was merged from"
        )
    return model, package
