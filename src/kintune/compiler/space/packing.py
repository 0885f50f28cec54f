"""How a scheduled program wants its weights laid out."""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm.s_tir import Schedule

from kintune.compiler.space.replay import weight_positions
from kintune.core.candidate import digest_of

__all__ = ["packing_of"]

_REWRITES = "meta_schedule.layout_rewrite_preproc"
"""The attribute of a block that writes a weight in the layout that the program reads."""


def packing_of(scheduled: tvm.IRModule) -> str:
    """A text that is the same for two scheduled programs, with `main` each, that want equal weights laid out equally.

    It is empty where they are taken as they are.
    """
    main = scheduled["main"]
    schedule = Schedule(scheduled, debug_mask=0, error_render_level="none")
    found: list[tuple[int, bytes]] = []
    for block in schedule.get_child_blocks(schedule.get_sblock("root", func_name="main")):
        statement = schedule.get(block)
        if not statement.annotations or _REWRITES not in statement.annotations:
            continue
        source = statement.reads[0].source
        place = next((at for at in weight_positions(main) if source.same_as(main.params[at])), -1)
        shape = [int(extent) for extent in statement.writes[0].source.shape]
        form = tvm_ffi.structural_hash(statement, map_free_vars=True).to_bytes(8, "little", signed=False)
        found.append((place, form + repr(shape).encode()))
    return digest_of(*(repr(at).encode() + form for at, form in sorted(found))) if found else ""
