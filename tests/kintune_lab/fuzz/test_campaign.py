"""Campaigns with a worker that has its own idea of what is wrong."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kintune_lab.fuzz.campaign import Campaign
from kintune_lab.fuzz.verdict import GraphVerdict, VerdictKind
from kintune_lab.fuzz.worker import Worker


class _Scripted(Worker):
    """Graphs of five nodes, of which number 3 is wrong where graph numbers are odd."""

    tried: list[int]

    def __init__(self, what: str, seed: int) -> None:
        super().__init__(what, seed)

    def try_model(self, number: int, kept: Collection[int] | None = None) -> GraphVerdict:
        nodes = tuple(range(5)) if kept is None else tuple(kept)
        if kept is None:
            self.tried.append(number)
        kind = VerdictKind.WRONG if number % 2 and 3 in nodes else VerdictKind.RIGHT
        return GraphVerdict(kind, "y: 1 of 2 values differ", nodes, ("Add",) if nodes == (3,) else ("Add", "Mul"))

    def save(self, number: int, kept: Collection[int], folder: Path, said: str) -> None:
        folder.mkdir(parents=True)
        (folder / "fault.txt").write_text(said)


@pytest.fixture
def scripted() -> Any:
    return type("Scripted", (_Scripted,), {"tried": []})


def test_faults_are_reduced_counted_by_signature_and_saved_three_times(tmp_path: Path, scripted: Any) -> None:
    campaign = Campaign("onnx", 20, 1, tmp_path, 2, lambda line: None, scripted)
    counts = campaign.run()
    assert (counts.graphs, counts.faults, counts.kinds[VerdictKind.RIGHT]) == (20, 10, 10)
    assert dict(counts.signatures) == {"wrong: Add": 10}
    assert 3 <= len(list((tmp_path / "faults").iterdir())) <= 4  # two processes may save the third at once
    assert {fault.verdict.kept for fault in campaign.faults} == {(3,)}


def test_a_campaign_goes_on_where_it_was_interrupted(tmp_path: Path, scripted: Any) -> None:
    Campaign("onnx", 6, 1, tmp_path, 1, lambda line: None, scripted).run()
    with open(tmp_path / "onnx-1.jsonl", "ab") as file:
        file.write(b'{"number":9,"verd')  # a process was killed
    counts = Campaign("onnx", 10, 1, tmp_path, 1, lambda line: None, scripted).run()
    assert sorted(scripted.tried) == list(range(10))
    assert counts.graphs == 10


def test_other_seeds_have_logs_of_their_own(tmp_path: Path, scripted: Any) -> None:
    Campaign("onnx", 3, 1, tmp_path, 1, lambda line: None, scripted).run()
    Campaign("onnx", 3, 2, tmp_path, 1, lambda line: None, scripted).run()
    assert sorted(scripted.tried) == [0, 0, 1, 1, 2, 2]


def test_the_line_has_all_counts(tmp_path: Path, scripted: Any) -> None:
    counts = Campaign("onnx", 4, 1, tmp_path, 1, lambda line: None, scripted).run()
    line = counts.line(2.0, 4)
    assert line.startswith("4 graphs: 2 right, 0 refused, 0 not compared, 2 wrong, 0 internal error, 0 crashed")
    assert line.endswith("2.00 graphs a second")


def test_refused_nodes_are_counted_by_their_operators(tmp_path: Path, scripted: Any) -> None:
    campaign = Campaign("onnx", 1, 1, tmp_path, 1, lambda line: None, scripted)
    campaign.counts.add(GraphVerdict(VerdictKind.RIGHT, refused=("Det: of 5x5", "Det: of 6x6", "If: a sequence")), "")
    assert campaign.counts.refused == {"Det": 1, "If": 1}
