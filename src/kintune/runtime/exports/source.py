"""Opens the file that is exported: its variants must be for machines like this one, whose libraries go with it."""

from __future__ import annotations

import platform
from pathlib import Path

from kintune.errors import InputError
from kintune.runtime.package import Package

__all__ = ["open_source"]


def open_source(model: Path) -> Package:
    """Open and verify the file that is exported.

    Raises:
        InputError: it is missing, damaged, of another format, or for a GPU; or one of its variants is for a machine of
            another kind than this one.
    """
    package = Package.open(model)
    machines = sorted({variant.manifest.machine for variant in package.variants})
    if machines == [platform.machine()]:
        return package
    if len(machines) == 1:
        raise InputError(f"{model}: built for {machines[0]}; export it on such a machine")
    raise InputError(
        f"{model}: built for {' and '.join(machines)}, and an export is for one of them; export each of the files that"
        " it was merged from, on such a machine"
    )
