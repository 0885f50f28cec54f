"""What a sketch says of the program that wrote it."""

from __future__ import annotations

import json

import pytest

from kintune.core.candidate import Axis, Choice, Location, NamedChoice, Sketch, Tile
from kintune.search.sketch_program import has_places

PLACE, NAMED = Choice((0, 1), (0.5, 0.5)), NamedChoice(("rows",), ((1,), (2,)))


@pytest.mark.parametrize(
    ("program", "instructions", "axes", "expected"),
    [
        ("tiled.1:8x16", [], (PLACE, PLACE), True),
        ("tiled.2:8x16", [], (NAMED,), False),
        ("rows.4:32", [], (), False),
        ("padded.1:198", [["GetSBlock", [], [], []]], (PLACE,), False),
        ("", [], (PLACE,), False),
        ("", [["GetSBlock", [], [], []]], (Tile(4, 2), PLACE, Location(3)), False),
    ],
)
def test_sketches_of_earlier_programs_have_places(
    program: str, instructions: list[object], axes: tuple[Axis, ...], expected: bool
) -> None:
    content = {"insts": instructions, "sampled": []} | ({"program": program} if program else {})
    assert has_places(Sketch("w", "s", json.dumps(content).encode(), axes)) == expected


def test_a_trace_of_another_space_says_nothing() -> None:
    assert not has_places(Sketch("w", "s", b"no JSON", (PLACE,)))
