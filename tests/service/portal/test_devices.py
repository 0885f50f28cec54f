from __future__ import annotations

import pytest

from kintune.service.orchestrator.events import EventTally
from kintune.service.portal.devices import tallied


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (EventTally(1, 0), "1 measurement, none disturbed"),
        (EventTally(64, 3), "64 measurements, 3 of them timed again because something else had used its cores"),
    ],
)
def test_disturbed_measurements_are_told_in_words(tally: EventTally, said: str) -> None:
    assert tallied(tally) == said
