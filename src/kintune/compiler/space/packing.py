"""The layout in which a scheduled program reads its weights: the blocks that pack them when the network is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock, SBlockRealize

from kintune.compiler.tir import nodes_in
from kintune.core.candidate import digest_of

__all__ = ["PACKS", "computes_packing", "packing_of", "without_packing"]

PACKS = "meta_schedule.layout_rewrite_preproc"
"""The attribute of a block that writes a weight in the layout that the program reads."""

_MAIN, _ROOT = "main", "root"


def packing_of(scheduled: tvm.IRModule) -> str:
    """A digest of the layouts in which a scheduled program (function `main`) reads its weights.

    It is equal for two programs that lay out equal weights equally, and empty where weights are read as they are.
    """
    main = scheduled[_MAIN]
    found: list[tuple[int, bytes]] = []
    for statement in _packing_blocks(main.body):
        source = statement.reads[0].source
        place = next((at for at, parameter in enumerate(main.params) if source.same_as(parameter)), -1)
        shape = [int(extent) for extent in statement.writes[0].source.shape]
        form = tvm_ffi.structural_hash(statement, map_free_vars=True).to_bytes(8, "little", signed=False)
        found.append((place, form + repr(shape).encode()))
    return digest_of(*(repr(at).encode() + form for at, form in sorted(found))) if found else ""


def computes_packing(scheduled: tvm.IRModule) -> bool:
    """Whether packing computes values instead of only copying them, which some of TVM's passes do not expect."""
    stores = [block.body for block in _packing_blocks(scheduled[_MAIN].body)]
    return any(not isinstance(getattr(store, "value", None), tvm.ir.TensorLoad) for store in stores)


def without_packing(scheduled: tvm.IRModule) -> tvm.IRModule:
    """The program (function `main`) without the blocks that pack its weights: its parameters are the packed ones."""
    main = scheduled[_MAIN]
    root: Any = getattr(main.body, "block", None)
    statements = list(getattr(getattr(root, "body", None), "seq", ()))
    kept: list[Any] = []
    packed: list[Any] = []
    params = list(main.params)
    for statement in statements:
        blocks = list(_packing_blocks(statement))
        if not blocks:
            kept.append(statement)
        for block in blocks:
            packed.append(block.writes[0].source)
            source = block.reads[0].source
            params = [packed[-1] if parameter.same_as(source) else parameter for parameter in params]
    if not packed:
        return scheduled
    buffers = [buffer for buffer in root.alloc_buffers if not any(buffer.same_as(each) for each in packed)]
    body = tvm.tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]
    block = SBlock([], root.reads, root.writes, root.name_hint, body, None, buffers, [], root.annotations)
    function = tvm.tirx.PrimFunc(params, SBlockRealize([], True, block), main.ret_type, main.attrs)
    return tvm.IRModule({_MAIN: function}, attrs=scheduled.attrs)


def _packing_blocks(statement: Any) -> Iterator[Any]:
    yield from (block for block in nodes_in(statement, SBlock) if PACKS in (block.annotations or {}))
