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
