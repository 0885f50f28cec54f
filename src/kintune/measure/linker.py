"""The C compiler, which links what the tensor compiler made; free of TVM."""

from __future__ import annotations

import os
import shutil

from kintune.errors import OrderError

__all__ = ["find_linker"]


def find_linker() -> str:
    """The C compiler that links artifacts: the one in `CC`, else `cc`, `gcc` or `clang`.

    Raises:
        OrderError: there is none.
    """
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        if name and (path := shutil.which(name)) is not None:
            return path
    raise OrderError("no C compiler found to link programs with: install gcc or clang, or name one in the variable CC")
