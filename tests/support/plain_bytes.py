"""Micro-kernels of bytes on CPUs without an instruction for them: the same functions, with products in plain steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kintune.compiler.kernels.microkernel import Kernel, Text

__all__ = ["plain_bytes"]


@contextmanager
def plain_bytes() -> Iterator[None]:
    """In this context, programs are written with products that any CPU computes, of unsigned data alone."""
    from kintune.compiler.kernels import nest

    written = nest.text_of

    def text(kernel: Kernel) -> Text:
        made, each = written(kernel), kernel.instruction
        name, sums, lanes = f"plain_product_{each.lanes}", each.sums, each.lanes * each.step
        wide, mask = f"<{lanes} x i32>", f"<{each.lanes} x i32>"
        lines = [f"define {sums} @{name}({sums} %t0, {each.operand} %a, {each.operand} %b) alwaysinline {{"]
        lines.append(f"  %wa = zext {each.operand} %a to {wide}")
        lines.append(f"  %wb = sext {each.operand} %b to {wide}")
        lines.append(f"  %p = mul {wide} %wa, %wb")
        for byte in range(each.step):
            places = ", ".join(f"i32 {lane * each.step + byte}" for lane in range(each.lanes))
            lines.append(f"  %s{byte} = shufflevector {wide} %p, {wide} poison, {mask} <{places}>")
            lines.append(f"  %t{byte + 1} = add {sums} %t{byte}, %s{byte}")
        lines += [f"  ret {sums} %t{each.step}", "}"]
        declared = ("\n".join(lines) if line == each.declaration else line for line in made.declared)
        return made._replace(declared=tuple(declared), text=made.text.replace(f"@{each.function}(", f"@{name}("))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nest, "text_of", text)
        yield
