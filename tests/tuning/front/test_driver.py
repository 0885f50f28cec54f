"""What can be told of several requests before any of them begins; whole campaigns are in tests/acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.model import ModelRef
from kintune.errors import InputError
from kintune.tuning.front.driver import Scheduling, tune_all
from kintune.tuning.front.request import TuneRequest


def request(name: str, output: str | None = None, device: str = "cpu") -> TuneRequest:
    return TuneRequest(model=ModelRef("zoo", name, name), output=output or f"{name}.kt", device=device)


@pytest.mark.parametrize(
    ("requests", "scheduling", "said"),
    [
        ([], Scheduling(), "there is no model to tune"),
        ([request("a")], Scheduling("fairest"), "there is no policy 'fairest'; there are sequential"),
        ([request("a"), request("b", "a.kt")], Scheduling(), "b and a would both be written to a.kt"),
        ([request("a"), request("b")], Scheduling("uncontrolled"), "give the device its own: --device cpu:1"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: list[TuneRequest], scheduling: Scheduling, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as raised:
        tune_all(requests, scheduling)
    assert said in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_by_default_a_run_may_do_more_than_one_thing_at_once() -> None:
    """Otherwise a device of its own would gain nothing: `sequential` never overlaps."""
    assert Scheduling().policy == "predictive"
