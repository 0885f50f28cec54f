"""A second network, similar to the first one, starts from what was learnt of it; also on another machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from kintune.testing.small_onnx import write_small_onnx

if TYPE_CHECKING:
    from tests.acceptance.conftest import Place

pytestmark = pytest.mark.tvm


@pytest.mark.slow  # tests/tuning/front/test_journal_knowledge.py has a toy that does
def test_the_next_network_starts_from_the_first(place: Place) -> None:
    first = place.tune("--trials", 16, "--json", "first.json")
    assert first.wait() == 0, first.err
    assert report(place, "first.json")["knowledge"] == {"programs": 0, "models": 0, "measured": 0, "lost": 0}
    used = tune_kin(place)
    assert used["programs"] >= 3
    assert 0 < used["measured"] <= 12
    assert used["lost"] == 0


@pytest.mark.slow
def test_what_was_measured_can_be_taken_elsewhere(place: Place) -> None:
    """Models are trained there."""
    elsewhere = place.folder / "elsewhere.sqlite"
    for arguments in (
        ("records", "export", "measured.gz"),
        ("records", "import", "measured.gz", "--records", elsewhere),
        ("records", "pretrain", "--families", "none", "--records", elsewhere),
    ):
        command = place.start(*arguments)
        assert command.wait() == 0, command.err
    assert "none" in command.out
    used = tune_kin(place, "--families", "none", "--records", elsewhere, channels=20)
    assert used["programs"] >= 3
    assert used["models"] == 1
    assert used["measured"] > 0


def tune_kin(place: Place, *arguments: object, channels: int = 24) -> dict[str, int]:
    """Tune the same network with other extents; the answer is what it started from."""
    model = write_small_onnx(place.folder / f"kin{channels}.onnx", channels=channels)
    command = place.start(
        "tune", model, "--trials", 8, "--threads", place.threads, "--json", "kin.json", "--log", "kin.log", *arguments
    )
    assert command.wait() == 0, command.err
    told = report(place, "kin.json")
    used: dict[str, int] = told["knowledge"]
    assert ("of similar workloads" in command.out) == (used["programs"] > 0)
    return used


def report(place: Place, name: str) -> dict[str, Any]:
    return dict(json.loads((place.folder / name).read_text()))
