"""Attention as one kernel: scores, softmax and weighted values block by block, so that scores stay in the caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tvm

from kintune.compiler.kernels.cost import Loop, Tasks, cycles_of_tasks
from kintune.compiler.programs.attention_pattern import NAME, AttentionPattern, attention_of, require_attention
from kintune.compiler.programs.attention_rows import RowBlocking, write_rows
from kintune.compiler.programs.attention_tiles import Blocking, write_tiles
from kintune.compiler.programs.tiling_program import TilingProgram
from kintune.runtime.target import capabilities
from kintune.search.processor import Processor

__all__ = ["AttentionProgram"]

_TILES, _ROWS = "tiles", "rows"
_QUERIES = (1, 2, 3, 4, 6, 8, 12, 16)
_KEYS = (32, 64, 128, 256)
_ROW_KEYS = (4, 8, 16)
_ROW_VECTORS = (4, 8)
_VECTORS = (4, 3, 2, 1)
_TALLEST = 14
_SCORE_TILES, _MIX_TILES = 3, 2
"""How many register tiles a search chooses from; the others load more for their arithmetic."""
_SHORT = (8, 4)
_FLOAT = 4


class _Case(NamedTuple):
    """Attention by a kind of kernel for `lanes` and `registers` of vectors; for any number up to `most` queries."""

    pattern: AttentionPattern
    kind: str
    lanes: int
    registers: int
    most: int = 0


_Tiling = Blocking | RowBlocking


def _tiling(**values: Any) -> _Tiling:
    return Blocking(**values) if "across" in values else RowBlocking(**values)


class AttentionProgram(TilingProgram[_Case, _Tiling]):
    """Attention in fp32: in tiles for many queries, row by row for few."""

    name = NAME
    version = 2
    patterns = (NAME,)
    tiling = staticmethod(_tiling)

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

    def case(self, module: tvm.IRModule, variant: str) -> _Case:
        """The workload, and how a variant computes it."""
        kind, lanes, registers = variant.split("-")
        return _Case(require_attention(module), kind, int(lanes), int(registers))

    def lists(self, case: _Case) -> Mapping[str, Sequence[Any]]:
        """The sizes of blocks, and the register tiles."""
        if case.kind == _ROWS:
            return {"keys": _ROW_KEYS, "vectors": _ROW_VECTORS}
        return {
            "queries": _queries(case),
            "keys": _keys(case.pattern),
            "score_rows score_vectors": _score_tiles(case),
            "mix_rows mix_vectors across": _mix_tiles(case),
        }

    def cost(self, case: _Case, tiling: _Tiling, machine: Processor) -> float:
        """The estimated cycles of the core that has most tasks."""
        tasks = _rows_tasks(case, tiling) if isinstance(tiling, RowBlocking) else _tile_tasks(case, tiling, machine)
        return cycles_of_tasks(tasks, machine)

    def module(self, module: tvm.IRModule, case: _Case, tiling: _Tiling, kept: frozenset[int]) -> tvm.IRModule:
        """The module whose `main` is the kernel."""
        function, pattern = module["main"], case.pattern
        written: tvm.IRModule
        if isinstance(tiling, RowBlocking):
            written = write_rows(function, pattern, case.lanes, tiling)
        else:
            written = write_tiles(function, pattern, case.lanes, tiling, most=case.most)
        return written

    def opened(self, case: _Case, greatest: _Case) -> _Case:
        """The workload, to be written in tiles for any number of queries and keys."""
        return super().opened(case, greatest) if case.kind == _ROWS else case._replace(most=greatest.pattern.rows)


def _queries(case: _Case) -> list[int]:
    """The vectors of queries a task may have."""
    most = _ceil(case.pattern.rows, case.lanes)
    return [number for number in _QUERIES if number <= most] + ([most] if most not in _QUERIES and most < 32 else [])


def _keys(pattern: AttentionPattern) -> list[int]:
    """The keys a block may have."""
    return [number for number in _KEYS if number < pattern.columns] + (
        [pattern.columns] if pattern.columns <= _KEYS[-1] else []
    )


def _score_tiles(case: _Case) -> list[tuple[int, int]]:
    """Keys by vectors of queries, that fit the registers; those that load the least for their arithmetic first."""
    found = [(_height(case, vectors), vectors) for vectors in _VECTORS]
    return sorted((tile for tile in found if tile[0] > 1), key=_loads)[:_SCORE_TILES]


def _mix_tiles(case: _Case) -> list[tuple[int, int, bool]]:
    """Queries by vectors of the width, and places of the width by vectors of queries (`across`)."""
    wide = _ceil(case.pattern.width, case.lanes)
    found = [(_height(case, vectors), vectors, False) for vectors in _VECTORS if vectors <= wide]
    if case.pattern.width < case.lanes:
        found = []
    found = sorted((tile for tile in found if tile[0] > 1), key=_loads)[:_MIX_TILES]
    return [*found, *((height, vectors, True) for height, vectors in _score_tiles(case))]


def _height(case: _Case, vectors: int) -> int:
    """How many rows of so many vectors the registers hold, beside the operands."""
    return min((case.registers - vectors - 1) // vectors, _TALLEST)


def _loads(tile: tuple[int, ...]) -> float:
    """Operands loaded for a multiply-add."""
    return (tile[0] + tile[1]) / (tile[0] * tile[1])


def _rows_tasks(case: _Case, tiling: RowBlocking) -> Tasks:
    """What is done row by row: scores of some keys at once, whose lanes are added up, and sums of weighted values."""
    p, lanes, keys = case.pattern, case.lanes, min(tiling.keys, case.pattern.columns)
    wide = _ceil(p.width, lanes)
    vectors, folds = min(tiling.vectors, wide), lanes.bit_length() - 1
    scores = Loop(p.columns / keys * _ceil(p.depth, lanes), keys, keys + 1, waits=1, starts=p.columns / keys)
    sums = Loop(p.columns, folds, folds, stores=folds)
    softmax = Loop(_ceil(p.columns, lanes), 2, 2, 1, functions=1)
    mix = Loop(p.columns * wide / vectors, vectors, vectors + 1, waits=1, starts=wide / vectors)
    return Tasks(p.heads * p.rows, (scores, sums, softmax, mix))


def _tile_tasks(case: _Case, tiling: Blocking, machine: Processor) -> Tasks:
    """What is done block by block: tiles of scores, the softmax, and tiles of the result, which are scaled before."""
    p, lanes = case.pattern, case.lanes
    blocks = _ceil(p.rows, tiling.queries * lanes)
    columns = _columns(p, _ceil(p.rows, blocks), tiling.keys)
    vectors, wide = _ceil(_ceil(p.rows, blocks), lanes), _ceil(p.width, lanes)
    passes = _ceil(columns, tiling.keys)  # blocks of keys
    scores = _tiles(columns, vectors, tiling.score_rows, tiling.score_vectors, p.depth)
    high, across = (p.width, vectors) if tiling.across else (vectors * lanes, wide)
    mix = _tiles(high, across, tiling.mix_rows, tiling.mix_vectors, columns, passes)
    softmax = Loop(columns * vectors, 2, 2, 2, functions=1)
    finish = Loop(vectors * lanes * (wide if not tiling.across else p.width), 2, 2, 1)
    pack = Loop(vectors * p.depth, 2, 2, 1)
    block = _FLOAT * min(tiling.keys, columns) * lanes * vectors  # of scores
    queries = _FLOAT * p.depth * lanes * vectors  # are read again for each tile of keys
    near = machine.caches[0]
    read = float(_FLOAT * columns * (p.depth + p.width))
    read += queries * columns / tiling.score_rows if queries > near else 0.0
    read += block * passes * (2 + across / tiling.mix_vectors) if block > near else 0.0
    if not tiling.across and _FLOAT * min(tiling.keys, columns) * p.width > near:  # values, for each tile of queries
        read += _FLOAT * columns * p.width * high / tiling.mix_rows
    return Tasks(p.heads * blocks, (scores, softmax, mix, finish, pack), order=read)


def _columns(pattern: AttentionPattern, rows: int, keys: int) -> int:
    """The columns that so many rows compute, on average: whole blocks of keys, up to the last one that is seen."""
    if pattern.shift is None:
        return pattern.columns
    seen = [
        min(pattern.columns, _ceil(end + pattern.shift, keys) * keys) for end in range(rows, pattern.rows + rows, rows)
    ]
    return _ceil(sum(seen), len(seen))


def _tiles(rows: int, vectors: int, height: int, width: int, depth: int, passes: int = 1) -> Loop:
    """The register tiles of a product, each of so many rows and vectors at most, in so many passes through its sum."""
    full = -(-rows // height) * -(-vectors // width)
    loads = _ceil(rows, height) * vectors + rows * _ceil(vectors, width)
    return Loop(
        full * depth, rows * vectors / full, loads / full, 2 * passes * rows * vectors / full / depth, waits=1,
        starts=full * passes,
    )  # fmt: skip


def _ceil(extent: int, size: int) -> int:
    return -(-extent // size)
