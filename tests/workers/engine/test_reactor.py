import sys
import threading

from kintune.core.messages import FromJob, Hello, Shutdown
from kintune.wire.channel import front_end_of_worker
from kintune.workers.engine.process import ChildProcess, Command
from kintune.workers.engine.process_log import ProcessLog
from kintune.workers.engine.reactor import Reactor


class Ticking:
    """A clock that moves a second at each look, so that alarms are due without waiting."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_alarms_ring_in_order_and_once() -> None:
    reactor = Reactor(Ticking())
    rung: list[str] = []
    reactor.set_alarm("late", 3.0, lambda: rung.append("late"))
    reactor.set_alarm("early", 1.0, lambda: rung.append("early"))
    reactor.set_alarm("replaced", 0.5, lambda: rung.append("wrong"))
    reactor.set_alarm("replaced", 2.0, lambda: rung.append("replaced"))
    reactor.set_alarm("cleared", 0.1, lambda: rung.append("wrong"))
    reactor.clear_alarm("cleared")
    while len(rung) < 3:
        reactor.wake()
        reactor.turn()
    reactor.close()
    assert rung == ["early", "replaced", "late"]


def test_an_alarm_may_clear_another_that_is_due() -> None:
    reactor = Reactor(Ticking())
    rung: list[str] = []
    reactor.set_alarm("second", 0.2, lambda: rung.append("second"))

    def first() -> None:
        rung.append("first")
        reactor.clear_alarm("second")

    reactor.set_alarm("first", 0.1, first)
    reactor.turn()
    reactor.close()
    assert rung == ["first"]


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_was_said_in_time_is_heard_before_a_deadline_rings() -> None:
    """From another thread, too: what it has posted is done `between`."""
    clock = Hand()
    reactor = Reactor(clock)
    rung: list[str] = []
    reactor.set_deadline("late", 1.0, lambda: rung.append("late"))
    clock.now = 2.0
    reactor.turn(sleeping=False, between=lambda: reactor.clear_alarm("late"))
    assert rung == []
    reactor.close()


def test_a_deadline_that_passes_while_somebody_is_heard_rings_after_the_others_were_heard() -> None:
    clock = Hand()
    reactor = Reactor(clock)
    rung: list[str] = []
    reactor.set_deadline("late", 1.0, lambda: rung.append("late"))

    def take_long() -> None:
        clock.now = 2.0

    reactor.turn(sleeping=False, between=take_long)
    assert rung == []
    reactor.turn(sleeping=False)
    assert rung == ["late"]
    reactor.close()


def test_deadlines_are_later_by_the_time_for_which_this_process_was_stopped_and_alarms_are_not() -> None:
    clock = Hand()
    reactor = Reactor(clock)
    rung: list[str] = []
    reactor.turn(sleeping=False)
    reactor.set_deadline("late", 10.0, lambda: rung.append("late"))
    reactor.set_deadline("cleared", 10.0, lambda: rung.append("wrong"))
    reactor.set_alarm("retry", 10.0, lambda: rung.append("retry"))
    clock.now = 100.0  # the machine has slept
    reactor.turn(sleeping=False)
    assert rung == ["retry"]
    reactor.clear_alarm("cleared")
    clock.now = 104.0
    reactor.turn(sleeping=False)
    clock.now = 109.0
    reactor.turn(sleeping=False)
    assert rung == ["retry"]
    clock.now = 110.0
    reactor.turn(sleeping=False)
    assert rung == ["retry", "late"]
    reactor.close()


def test_another_thread_ends_the_sleep() -> None:
    reactor = Reactor(lambda: 0.0)
    waker = threading.Thread(target=reactor.wake)
    waker.start()
    reactor.turn()
    waker.join()
    reactor.close()


class Notes:
    def __init__(self) -> None:
        self.said: list[FromJob] = []
        self.how = ""

    def heard(self, message: FromJob) -> None:
        self.said.append(message)

    def ended(self, how: str) -> None:
        self.how = how


def scripted_worker() -> ChildProcess:
    command = Command((sys.executable, "-m", "tests.support.scripted_worker"))
    return ChildProcess("w", command, front_end_of_worker, ProcessLog(None))


def test_a_child_is_heard_until_its_end() -> None:
    reactor, notes, child = Reactor(lambda: 0.0), Notes(), scripted_worker()
    reactor.attach(child, notes)
    while not notes.said:
        reactor.turn()
    assert isinstance(notes.said[0], Hello)
    assert notes.said[0].pid == child.pid
    reactor.send(child, Shutdown())
    while not notes.how:
        reactor.turn()
    reactor.close()
    assert notes.how == "exited with code 0"


def test_closing_kills_what_is_attached() -> None:
    reactor, notes, child = Reactor(lambda: 0.0), Notes(), scripted_worker()
    reactor.attach(child, notes)
    reactor.close()
    assert notes.how == ""
    assert child.kill() == "killed by SIGKILL"
