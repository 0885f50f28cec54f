"""Attention as one kernel: scores, softmax and weighted values block by block, so that scores stay in the caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.programs.attention_pattern import NAME, AttentionPattern, attention_of, require_attention
from kintune.compiler.programs.attention_rows import RowBlocking, write_rows
from kintune.compiler.programs.attention_tiles import Blocking, write_tiles
from kintune.compiler.programs.choice_lists import ChoiceLists
from kintune.compiler.programs.program import Program
from kintune.core.candidate import Axis, Decision
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["AttentionProgram"]

_TILES, _ROWS = "tiles", "rows"
_QUERIES = (1, 2, 3, 4, 6, 8, 12, 16)
_KEYS = (32, 64, 128, 256)
_ROW_KEYS = (4, 8, 16)
_USUAL_ROW_KEYS = (8, 4, 16)  # in the order of the rule
_ROW_VECTORS = (4, 8)
_USUAL_KEYS = 96
_VECTORS = (4, 3, 2, 1)
_TALLEST = 14
_SCORE_TILES, _MIX_TILES = 3, 2
"""How many register tiles a search chooses from; the others load more for their arithmetic."""
_SHORT = (8, 4)


class _Variant(NamedTuple):
    """A kind of kernel for vectors of `lanes`, and `registers` of them."""

    kind: str
    lanes: int
    registers: int


class AttentionProgram(Program):
    """Attention in fp32: in tiles for many queries, row by row for few."""

    name = NAME
    version = 2
    patterns = (NAME,)

    def variants(self, module: tvm.IRModule, target: tvm.target.Target) -> Sequence[str]:
        """In tiles where queries fill a vector of the target; else row by row, or in tiles of shorter vectors."""
        pattern = attention_of(module["main"])
        if pattern is None:
            return ()
        can = capabilities(target)
        lanes, registers = can.lanes, can.registers
        if pattern.rows >= lanes:
            return (f"{_TILES}-{lanes}-{registers}",)
        shorter = [f"{_TILES}-{short}-{registers}" for short in _SHORT if short < lanes and short <= pattern.rows]
        return (f"{_ROWS}-{lanes}-{registers}", *shorter[:1])

    def axes(self, module: tvm.IRModule, variant: str) -> tuple[Axis, ...]:
        """The sizes of blocks and register tiles."""
        return _choices(require_attention(module), _parsed(variant)).axes()

    def written(
        self, module: tvm.IRModule, variant: str, decisions: tuple[Decision, ...], kept: frozenset[int]
    ) -> tvm.IRModule:
        """The module whose `main` is the kernel."""
        pattern, chosen = require_attention(module), _parsed(variant)
        values = _choices(pattern, chosen).picked(decisions)
        if chosen.kind == _ROWS:
            return write_rows(module["main"], pattern, RowBlocking(chosen.lanes, *values))
        queries, keys, score, mix = values
        return write_tiles(module["main"], pattern, Blocking(chosen.lanes, queries, keys, *score, *mix))

    def rule(self, module: tvm.IRModule, variant: str, machine: Processor) -> Sequence[tuple[Decision, ...]]:
        """Blocks of queries that divide the rows well, blocks of keys that fit the first cache, large tiles."""
        pattern, chosen = require_attention(module), _parsed(variant)
        if chosen.kind == _ROWS:
            return [((keys,), (vectors,)) for keys in _USUAL_ROW_KEYS for vectors in _ROW_VECTORS]
        first = sorted(_queries(pattern, chosen), key=lambda each: (_waste(pattern, chosen, each, machine), -each))
        second = sorted(_keys(pattern), key=lambda each: abs(each - _USUAL_KEYS))
        found: list[tuple[Any, ...]] = []
        for queries in first[:4]:
            scores = sorted(_score_tiles(chosen), key=lambda tile: _loads((tile[0], min(tile[1], queries))))
            mixes = sorted(
                _mix_tiles(pattern, chosen), key=lambda tile: _loads(_fitted(tile, pattern, chosen.lanes, queries))
            )
            found += [(queries, keys, score, mix) for keys in second[:2] for score in scores[:2] for mix in mixes[:2]]
        return list(map(_choices(pattern, chosen).decisions, found))


def _fitted(tile: tuple[int, int, bool], pattern: AttentionPattern, lanes: int, queries: int) -> tuple[int, int]:
    """The height and vectors of a result tile, clipped to the width and to a block of `queries` vectors of queries."""
    height, vectors, across = tile
    if across:
        return min(height, pattern.width), min(vectors, queries)
    return min(height, queries * lanes), min(vectors, _ceil(pattern.width, lanes))


def _parsed(variant: str) -> _Variant:
    kind, lanes, registers = variant.split("-")
    return _Variant(kind, int(lanes), int(registers))


def _choices(pattern: AttentionPattern, chosen: _Variant) -> ChoiceLists:
    """The sizes of blocks, and the register tiles."""
    if chosen.kind == _ROWS:
        return ChoiceLists(AttentionProgram.name, {"keys": _ROW_KEYS, "vectors": _ROW_VECTORS})
    values: dict[str, Sequence[Any]] = {
        "queries": _queries(pattern, chosen),
        "keys": _keys(pattern),
        "score_rows score_vectors": _score_tiles(chosen),
        "mix_rows mix_vectors across": _mix_tiles(pattern, chosen),
    }
    return ChoiceLists(AttentionProgram.name, values)


def _queries(pattern: AttentionPattern, chosen: _Variant) -> list[int]:
    """The vectors of queries a task may have."""
    most = _ceil(pattern.rows, chosen.lanes)
    return [number for number in _QUERIES if number <= most] + ([most] if most not in _QUERIES and most < 32 else [])


def _keys(pattern: AttentionPattern) -> list[int]:
    """The keys a block may have."""
    return [number for number in _KEYS if number < pattern.columns] + (
        [pattern.columns] if pattern.columns <= _KEYS[-1] else []
    )


def _score_tiles(chosen: _Variant) -> list[tuple[int, int]]:
    """Keys by vectors of queries, that fit the registers; those that load the least for their arithmetic first."""
    found = [(_height(chosen, vectors), vectors) for vectors in _VECTORS]
    return sorted((tile for tile in found if tile[0] > 1), key=_loads)[:_SCORE_TILES]


def _mix_tiles(pattern: AttentionPattern, chosen: _Variant) -> list[tuple[int, int, bool]]:
    """Queries by vectors of the width, and places of the width by vectors of queries (`across`)."""
    wide = _ceil(pattern.width, chosen.lanes)
    found = [(_height(chosen, vectors), vectors, False) for vectors in _VECTORS if vectors <= wide]
    if pattern.width < chosen.lanes:
        found = []
    found = sorted((tile for tile in found if tile[0] > 1), key=_loads)[:_MIX_TILES]
    return [*found, *((height, vectors, True) for height, vectors in _score_tiles(chosen))]


def _height(chosen: _Variant, vectors: int) -> int:
    """How many rows of so many vectors the registers hold, beside the operands."""
    return min((chosen.registers - vectors - 1) // vectors, _TALLEST)


def _loads(tile: tuple[int, ...]) -> float:
    """Operands loaded for a multiply-add."""
    return (tile[0] + tile[1]) / (tile[0] * tile[1])


def _waste(pattern: AttentionPattern, chosen: _Variant, queries: int, machine: Processor) -> float:
    """The estimated time with `queries` vectors of queries a task, relative to full vectors spread evenly on threads.

    The time is that of the thread with the most tasks.  Tasks of one or two vectors are charged 0.15 more.
    """
    blocks = _ceil(pattern.rows, queries * chosen.lanes)
    vectors = _ceil(_ceil(pattern.rows, blocks), chosen.lanes)
    rounds = _ceil(pattern.heads * blocks, machine.threads)
    ideal = pattern.heads * pattern.rows / (chosen.lanes * machine.threads)
    small = 0.15 if vectors < 3 else 0.0
    return round(rounds * vectors / ideal + small, 2)


def _ceil(extent: int, size: int) -> int:
    return -(-extent // size)
