"""Micro-kernels of tiles on CPUs without tile registers: the same functions, made of kernels of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from kintune.hardware.amx import permit_amx
from kintune.hardware.cpu import host_extensions

if TYPE_CHECKING:
    from kintune.compiler.kernels.microkernel import Kernel, Text

__all__ = ["has_tiles", "runnable_tiles"]


def has_tiles(*extensions: str) -> bool:
    """Whether this CPU has these extensions, and the system lets processes use its tiles."""
    return set(extensions).issubset(host_extensions() or ()) and permit_amx()


@contextmanager
def runnable_tiles(*extensions: str) -> Iterator[None]:
    """In this context, programs are written with such functions where this CPU lacks one of the extensions."""
    with pytest.MonkeyPatch.context() as patch:
        if not has_tiles(*extensions):
            _make_of_vectors(patch)
        yield


def _make_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.compiler.kernels import nest
    from kintune.compiler.kernels.instructions import BYTES, PAIRS
    from kintune.compiler.kernels.microkernel import Kernel, named

    written = nest.text_of

    def text(kernel: Kernel) -> Text:
        if not kernel.instruction.tiles:
            return written(kernel)
        vectors = next(each for each in (*PAIRS, *BYTES) if each.total == kernel.instruction.total and not each.tiles)
        rows = Kernel(
            vectors, kernel.height, kernel.vectors, kernel.steps * kernel.words, segments=kernel.segments,
            pitch=kernel.pitch, adds=kernel.adds,
        )  # fmt: skip
        of_tile = written(rows)
        given = [
            *(f"ptr %r{tile}" for tile in range(kernel.addresses)),
            "ptr %w",
            "ptr %c",
            *["ptr %ahead"][: kernel.lines],
        ]
        lines = [of_tile.text.replace(of_tile.name, "KERNEL_tile")]
        lines += [f"define i32 @KERNEL_{when}() {{\n  ret i32 0\n}}" for when in ("begin", "end")]
        lines.append(f"define i32 @KERNEL({', '.join(given)}) {{")
        for tile in range(kernel.rows):
            lines.append(f"  %c{tile} = getelementptr i8, ptr %c, i64 {tile * kernel.height * kernel.line}")
            lines.append(f"  %done{tile} = call i32 @KERNEL_tile(ptr %r{tile}, ptr %w, ptr %c{tile})")
        return named(written(kernel).name.rpartition("_")[0], of_tile.declared, [*lines, "  ret i32 0\n}"])

    monkeypatch.setattr(nest, "text_of", text)
