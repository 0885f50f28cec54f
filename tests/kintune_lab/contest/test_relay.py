from __future__ import annotations

import pytest

from kintune_lab.contest.relay import Relay


def test_the_work_goes_on_only_during_turns() -> None:
    done: list[int] = []

    def work() -> None:
        for number in range(3):
            done.append(number)
            relay.halt()

    relay = Relay(work)
    assert done == []
    assert [relay.turn() for _ in range(3)] == [False, False, False]
    assert done == [0, 1, 2]
    assert relay.turn()
    assert relay.turn()  # there is nothing left to do
    assert done == [0, 1, 2]


def test_what_the_work_raises_is_raised_in_the_turn() -> None:
    def work() -> None:
        relay.halt()
        raise ValueError("broken")

    relay = Relay(work)
    assert not relay.turn()
    with pytest.raises(ValueError, match="broken"):
        relay.turn()
