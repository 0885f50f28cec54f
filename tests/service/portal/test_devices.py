from __future__ import annotations

import pytest

from kintune.service.orchestrator.events import EventTally
from kintune.service.portal import devices
from kintune.service.portal.devices import tallied
from kintune.wire.confinement import ConfinementLayer


@pytest.mark.parametrize(
    ("tally", "said"),
    [
        (EventTally(1, 0), "1 measurement, none disturbed"),
        (EventTally(64, 3), "64 measurements, 3 of them timed again because something else had used its cores"),
    ],
)
def test_disturbed_measurements_are_told_in_words(tally: EventTally, said: str) -> None:
    assert tallied(tally) == said


@pytest.mark.parametrize("isolates", [True, False])
def test_layers_of_isolation_are_shown_with_what_turns_them_on(monkeypatch: pytest.MonkeyPatch, isolates: bool) -> None:
    found = (
        ConfinementLayer("namespaces", "no network", True, "by bwrap"),
        ConfinementLayer("Landlock", "files", False, "old", "a new kernel"),
    )
    monkeypatch.setattr(devices, "layers", lambda: found)
    shown = devices._isolation(isolates=isolates)
    assert "old; a new kernel" in shown
    assert ("the service does without it" in shown) is not isolates
    assert ("chip-ready" in shown) is isolates
