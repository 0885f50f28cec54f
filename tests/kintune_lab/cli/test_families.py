from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kintune.errors import InputError
from kintune_lab.cli import families as module
from kintune_lab.families.document import FamiliesDocument
from tests.support.example_families import example_families

if TYPE_CHECKING:
    from tests.support.command import Kintune

BARE = example_families(measured=False)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is found out, under "answer", and what was asked, under "asked"."""
    held: dict[str, Any] = {"answer": example_families()}

    def inquire(ref: object, algorithm: str, **asked: object) -> FamiliesDocument:
        held["asked"] = {"algorithm": algorithm, **asked}
        answer: FamiliesDocument | Exception = held["answer"]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "inquire", inquire)
    return held


def test_families_are_listed_with_their_members_and_the_map(kintune: Kintune, answers: dict[str, Any]) -> None:
    said = kintune("families", "zoo:resnet18")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0] == "network: 5 distinct subgraphs, 4 of them worth tuning, in 2 families (op)"
    assert lines[2:5] == [
        "op:conv2d: 2 subgraphs, 92.1 % of the operations",
        "  1  conv2d 112x112x64 over 32    3x  2.00 MFLOP  20 samples  conv2d-add",
        "  2  conv2d 56x56x64 over 3x3x32  1x  1.00 MFLOP  20 samples  conv2d-add",
    ]
    assert "60 samples, measured on A processor" in said.out
    assert " 1 conv2d 112x112x64 over 32   ██ ██ │ ░░" in lines


def test_without_samples_the_command_that_brings_them_is_said(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = BARE
    said = kintune("families", "zoo:bert_base?layers=2")
    assert said.code == 0
    assert said.out.splitlines()[-1] == (
        "No relationship map: no subgraph has 24 measured programs or more; "
        "measure them with: kintune tune 'zoo:bert_base?layers=2' --trials 384"
    )
    given = ("--shape", "ids=1x{8,16}", "--constant", "flag=true", "--threads", 1, "--records", "here.sqlite")
    said = kintune("families", "zoo:bert_base", *given)
    assert said.out.splitlines()[-1].endswith(
        "kintune tune zoo:bert_base --shape 'ids=1x{8,16}' --constant flag=true --threads 1 --records here.sqlite"
        " --trials 384"
    )


def test_the_picture_is_drawn(kintune: Kintune, answers: dict[str, Any], tmp_path: Path) -> None:
    said = kintune("families", "zoo:resnet18", "--picture", tmp_path / "map.png")
    assert said.code == 0
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    assert said.out.splitlines()[-1] == f"The picture is {tmp_path / 'map.png'}"


def test_there_is_no_picture_without_samples(kintune: Kintune, answers: dict[str, Any], tmp_path: Path) -> None:
    answers["answer"] = BARE
    said = kintune("families", "zoo:resnet18", "--picture", tmp_path / "map.png")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "--picture: no subgraph has 24 measured programs" in said.err
    assert list(tmp_path.iterdir()) == []


def test_the_document_has_families_and_the_map(kintune: Kintune, answers: dict[str, Any]) -> None:
    said = kintune("families", "zoo:resnet18", "--families", "hash", "--threads", 1, "--json", "-")
    document = json.loads(said.out)
    assert (document["schema_version"], document["algorithm"]) == (1, "op")
    assert document["relation"]["accuracy"][1] == [0.66, 0.92, None]
    assert (answers["asked"]["algorithm"], answers["asked"]["threads"]) == ("hash", 1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["zoo:none"],
        ["zoo:resnet18", "--families", "kind"],
        ["zoo:resnet18", "--picture", "map.jpg"],
        ["zoo:resnet18", "--picture", "no/such/place/map.png"],
        ["zoo:resnet18", "--threads", "0"],
    ],
)
def test_wrong_input_is_one_line(kintune: Kintune, answers: dict[str, Any], arguments: list[str]) -> None:
    said = kintune("families", *arguments)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "asked" not in answers


def test_what_the_inquiry_refuses_is_one_line(kintune: Kintune, answers: dict[str, Any]) -> None:
    answers["answer"] = InputError("network: too few samples")
    said = kintune("families", "zoo:resnet18")
    assert (said.code, said.err) == (2, "kintune: error: network: too few samples\n")


def test_no_line_of_the_table_is_wider_than_the_terminal(
    kintune: Kintune, answers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = kintune("families", "zoo:resnet18").out.splitlines()
    assert "  1  conv2d 112x112x64 over 32    3x  2.00 MFLO..." in lines
