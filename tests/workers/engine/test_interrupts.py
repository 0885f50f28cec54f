from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from kintune.workers.engine.interrupts import Interrupted, Interrupts, ending_by_signals

pytestmark = pytest.mark.usefixtures("hears_hangups")


class Stopping:
    """Counts how often it was asked to stop; its clock is set by hand."""

    def __init__(self) -> None:
        self.asked = 0
        self.now = 0.0

    def stop(self) -> None:
        self.asked += 1

    def interrupts(self) -> Interrupts:
        return Interrupts(self.stop, lambda: self.now)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_to_stop_and_the_next_one_leaves(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stopping = Stopping()
    with ending_by_signals(), stopping.interrupts():
        send(number)
        assert stopping.asked == 1
        stopping.now = 10.0
        with pytest.raises(Interrupted) as raised:
            send(number)
        assert (stopping.asked, raised.value.number) == (1, number)
    assert signal.getsignal(number) is before


def test_outside_of_a_run_a_signal_leaves_at_once() -> None:
    with ending_by_signals(), pytest.raises(Interrupted):
        send(signal.SIGTERM)


def test_of_a_terminal_that_closes_kernel_and_shell_tell_once() -> None:
    stopping = Stopping()
    with ending_by_signals(), stopping.interrupts():
        send(signal.SIGHUP)
        stopping.now = 0.5
        send(signal.SIGHUP)
        with pytest.raises(Interrupted):
            send(signal.SIGTERM)
    assert stopping.asked == 1


def test_a_program_keeps_its_own_way_with_signals() -> None:
    told: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: told.append(number))
    try:
        stopping = Stopping()
        with stopping.interrupts():
            send(signal.SIGTERM)
        assert (told, stopping.asked) == ([signal.SIGTERM], 0)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stopping = Stopping()
        with ending_by_signals(), stopping.interrupts():
            send(signal.SIGHUP)
            send(signal.SIGHUP)
        assert stopping.asked == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_get_no_signals() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    seen: list[object] = []

    def look() -> None:
        with ending_by_signals(), Stopping().interrupts():
            seen.extend(signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM))

    call: Callable[[], None] = look
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert seen == before
