from __future__ import annotations

import msgspec
import pytest

from kintune.errors import EngineError
from kintune.scheduler.events import Event, ResourceBack, ResourceJoined, ResourceLost
from kintune.scheduler.resources import Device, Host
from kintune.workers.engine.inventory import Inventory

HOST, BOARD = Host("there", 2, 1000), Device("there/board", "pi5")


@pytest.fixture
def told() -> list[Event]:
    return []


@pytest.fixture
def inventory(told: list[Event]) -> Inventory:
    return Inventory(told.append, lambda: 0.0)


def test_what_comes_back_unchanged_is_back_and_what_has_changed_joins(inventory: Inventory, told: list[Event]) -> None:
    grown = msgspec.structs.replace(HOST, cores=4)
    for resource in (HOST, HOST, grown):
        inventory.join(resource)
        inventory.lose("there", "cut off")
    kinds = [type(event) for event in told]
    assert kinds == [ResourceJoined, ResourceLost, ResourceBack, ResourceLost, ResourceJoined, ResourceLost]
    assert told[4] == ResourceJoined(0.0, grown)


def test_what_has_changed_is_not_told_before_it_can_be_used(inventory: Inventory, told: list[Event]) -> None:
    other = msgspec.structs.replace(BOARD, type="pi4")
    inventory.join(BOARD)
    inventory.lose(BOARD.id, "too many items were lost", "quarantine")
    inventory.lose(BOARD.id, "cut off")
    inventory.join(other)
    assert not inventory.is_usable(BOARD.id)
    assert (inventory.count("pi5"), inventory.count("pi4")) == (0, 0)
    inventory.give_back(BOARD.id, "quarantine")
    assert [type(event) for event in told] == [ResourceJoined, ResourceLost, ResourceJoined]
    assert told[-1] == ResourceJoined(0.0, other)
    assert inventory.count("pi4") == 1


def test_why_no_device_can_be_used_is_known_while_there_is_none(inventory: Inventory) -> None:
    assert inventory.why_none("pi5") == ""
    inventory.join(BOARD)
    assert inventory.why_none("pi5") == ""
    inventory.lose(BOARD.id, "the reference kernel takes twice as long", "quarantine")
    inventory.lose(BOARD.id, "its connection ended")
    assert inventory.why_none("pi5") == (
        f"{BOARD.id}: the reference kernel takes twice as long; {BOARD.id}: its connection ended"
    )
    inventory.give_back(BOARD.id, "quarantine")
    assert inventory.why_none("pi5") == f"{BOARD.id}: its connection ended"
    inventory.give_back(BOARD.id)
    assert inventory.why_none("pi5") == ""


def test_what_is_there_or_was_of_another_kind_cannot_join(inventory: Inventory) -> None:
    inventory.join(HOST)
    with pytest.raises(EngineError, match="there is a 'there' already"):
        inventory.join(HOST)
    inventory.lose("there", "cut off")
    with pytest.raises(EngineError, match="'there' comes back as something else"):
        inventory.join(Device("there", "pi5"))
