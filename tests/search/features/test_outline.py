import json
from typing import Any

import msgspec
import pytest

from kintune.core.candidate import Sketch, Tile
from kintune.search.access_patterns import AccessPatterns
from kintune.search.features.outline import Outline, outline_of


def _with(sketch: Sketch, *instructions: list[Any]) -> Sketch:
    return msgspec.structs.replace(sketch, trace=json.dumps({"insts": instructions}).encode())


ORDER = ["Reorder", ["i0", "j0", "i1", "j1", "k0", "i2", "j2", "k1", "i3", "j3", "vector"], [], []]


def test_a_sketch_that_tiles_the_core_at_all_levels_has_an_outline(sketch: Sketch, product: AccessPatterns) -> None:
    assert outline_of(sketch, product) == Outline((0, 1, 2), -1, buffered=False)


@pytest.mark.parametrize(
    ("loop", "level"), [("j0", 0), ("i1", 1), ("j1", 1), ("k0", 2), ("j2", 3), ("j3", 5), ("vector", 5)]
)
def test_it_says_where_the_consumer_is_computed(sketch: Sketch, product: AccessPatterns, loop: str, level: int) -> None:
    traced = _with(sketch, ORDER, ["CacheWrite", ["b"], [], ["c"]], ["ReverseComputeAt", ["c", loop], [], []])
    assert outline_of(traced, product) == Outline((0, 1, 2), level, buffered=True)


@pytest.mark.parametrize(
    "axes",
    [
        (),
        (Tile(64, 4, 64, "s0:i"), Tile(256, 4, 64, "s1:j")),
        (Tile(64, 4, 64, "s0:i"), Tile(256, 4, 64, "s1:j"), Tile(128, 4, 64, "r2:k")),
        (Tile(64, 4, 64, "s0:i"), Tile(255, 4, 64, "s1:j"), Tile(128, 2, 64, "r2:k")),
        (Tile(64, 4, 64, "s0:i"), Tile(256, 4, 64, "s1:j"), Tile(128, 2, 64, "r?:")),
    ],
)
def test_any_other_sketch_has_none(product: AccessPatterns, axes: tuple[Tile, ...]) -> None:
    assert outline_of(Sketch("product", "other", b"", axes), product) is None
