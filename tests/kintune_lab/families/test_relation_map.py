from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from kintune.errors import EnvironmentProblem, InputError
from kintune_lab.families.relation_map import check_picture, draw_picture, draw_text
from tests.support.example_families import example_families

HEADS = {".png": b"\x89PNG", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_map_is_drawn_to_the_kind_of_file_that_its_name_says(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"map{suffix}"
    draw_picture(example_families(), path)
    data = path.read_bytes()
    assert data.startswith(HEADS[suffix])
    draw_picture(example_families(), path)
    assert path.read_bytes() == data


def test_the_labels_say_which_subgraph_it_is(tmp_path: Path) -> None:
    draw_picture(example_families(), tmp_path / "map.svg")
    text = (tmp_path / "map.svg").read_text()
    assert "conv2d 56x56x64 over 3x3x32" in text
    assert "families (op)" in text
    assert ">95<" in text


def test_a_model_s_name_is_no_formula(tmp_path: Path) -> None:
    draw_picture(msgspec.structs.replace(example_families(), model=r"a $\frac$ b"), tmp_path / "map.svg")
    assert r"a $\frac$ b" in (tmp_path / "map.svg").read_text()


def test_there_must_be_a_map() -> None:
    with pytest.raises(InputError, match="no relationship map"):
        draw_picture(msgspec.structs.replace(example_families(), relation=None), Path("map.png"))


def test_a_name_that_is_no_pictures_is_refused() -> None:
    with pytest.raises(InputError, match=r"--picture map\.jpg: must end in \.png or \.svg"):
        check_picture("map.jpg")
    check_picture("map.PNG")


def test_what_to_install_is_said_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(EnvironmentProblem, match=r'pip install "kintune\[bench\]"'):
        check_picture("map.png")


def test_the_map_has_a_row_and_a_column_for_each_member_and_sets_families_apart() -> None:
    assert draw_text(example_families()) == [
        "                                1  2 │  3",
        " 1 conv2d 112x112x64 over 32   ██ ██ │ ░░",
        " 2 conv2d 56x56x64 over 3x3x32 ▒▒ ██ │   ",
        "                               ──────┼───",
        " 3 dense 1000 over 512          · ░░ │ ██",
    ]


def test_without_a_map_there_is_nothing_to_show() -> None:
    assert draw_text(msgspec.structs.replace(example_families(), relation=None)) == []


def test_where_there_is_little_room_rows_say_less() -> None:
    assert draw_text(example_families(), width=40)[1] == " 1 conv2d ██ ██ │ ░░"
    assert draw_text(example_families(), width=41)[1].startswith(" 1 conv2d 112x112x64 over 32 ")
