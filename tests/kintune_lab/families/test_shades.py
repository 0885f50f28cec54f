from __future__ import annotations

import msgspec

from kintune_lab.families.shades import shaded
from tests.support.kinship import example_families


def test_the_map_has_a_row_and_a_column_for_each_member_and_sets_families_apart() -> None:
    assert shaded(example_families()) == [
        "                                1  2 │  3",
        " 1 conv2d 112x112x64 over 32   ██ ██ │ ░░",
        " 2 conv2d 56x56x64 over 3x3x32 ▒▒ ██ │   ",
        "                               ──────┼───",
        " 3 dense 1000 over 512          · ░░ │ ██",
    ]


def test_without_a_map_there_is_nothing_to_show() -> None:
    assert shaded(msgspec.structs.replace(example_families(), relation=None)) == []


def test_where_there_is_little_room_rows_say_less() -> None:
    assert shaded(example_families(), width=40)[1] == " 1 conv2d ██ ██ │ ░░"
    assert shaded(example_families(), width=41)[1].startswith(" 1 conv2d 112x112x64 over 32 ")
