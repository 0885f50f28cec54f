from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kintune.errors import EngineError, InputError
from kintune.wire.worker_client import WorkerDied, WorkerProcess, WorkerRefused, WorkerTimedOut, interview
from tests.support.processes import state_of, wait_until_gone
from tests.support.script import Act, Deed

MODULE = """
import os, signal, subprocess, sys
from kintune.errors import InputError
from kintune.wire import worker_loop as worker

class Handler:
    def begin(self, kind, context):
        self.context = context

    def item(self, payload):
        match payload:
            case b"fail":
                raise ValueError("no such thing")
            case b"die":
                os.kill(os.getpid(), signal.SIGKILL)
            case b"leave":
                os._exit(3)
            case b"hang":
                signal.pause()
            case b"child":
                child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
                return str(child.pid).encode()
            case b"print":
                print("a last word", flush=True)
        return self.context + payload

def start(arguments):
    if "refuse" in arguments:
        raise InputError("not today")
    return b"about", Handler()

worker.main("small", start)
"""

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a small worker."""
    (tmp_path / "small_worker.py").write_text(MODULE)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    started: list[WorkerProcess] = []

    def begun(*arguments: str) -> WorkerProcess:
        process = WorkerProcess(
            "small", "small_worker", arguments, log=tmp_path / "log", environment={"PYTHONPATH": path}
        )
        started.append(process)
        return process

    yield begun
    for process in started:
        process.close()


def test_it_answers_orders_of_its_stage(start: Start) -> None:
    with start() as process:
        assert process.greet() == b"about"
        process.begin("one", b"1")
        assert process.order(b"x", 60) == b"1x"
        process.begin("two", b"2")
        assert process.order(b"y", 60) == b"2y"


def test_a_refused_order_leaves_it_usable(start: Start) -> None:
    with start() as process:
        process.greet()
        process.begin("one", b"1")
        with pytest.raises(WorkerRefused, match="small: ValueError: no such thing"):
            process.order(b"fail", 60)
        assert process.order(b"x", 60) == b"1x"


@pytest.mark.parametrize(("order", "how"), [(b"die", "killed by SIGKILL"), (b"leave", "exited with code 3")])
def test_its_end_says_how(start: Start, order: bytes, how: str) -> None:
    with start() as process:
        process.greet()
        process.begin("one", b"")
        with pytest.raises(WorkerDied, match=f"small: {how}; see .*log"):
            process.order(order, 60)


def test_taking_too_long_is_its_end(start: Start) -> None:
    with start() as process:
        process.greet()
        pid = process.pid
        process.begin("one", b"")
        with pytest.raises(WorkerTimedOut, match="took too long"):
            process.order(b"hang", 0.01)
        assert state_of(pid) == ""


def test_one_that_was_ended_has_nothing_to_leave(start: Start) -> None:
    process = start()
    process.greet()
    process.begin("one", b"")
    with pytest.raises(WorkerTimedOut):
        process.order(b"hang", 0.01)
    process.leave()


def test_its_number_is_not_killed_again_once_it_is_gone(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then it may be another process's."""
    process = start()
    process.close()
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("a stranger is killed"))
    process.close()


def test_what_its_start_refuses_is_said(start: Start) -> None:
    with start("refuse") as process, pytest.raises(WorkerRefused, match="small: not today"):
        process.greet()


def test_it_is_stopped_with_its_children_and_goes_on(start: Start) -> None:
    with start() as process:
        process.greet()
        pid = process.pid
        process.begin("one", b"1")
        child = int(process.order(b"child", 60))
        process.stop()
        assert state_of(pid) == "T"
        while state_of(child) != "T":
            os.sched_yield()
        process.resume()
        assert process.order(b"x", 60) == b"1x"
        process.stop()
    assert state_of(pid) == ""
    wait_until_gone(child)


def test_what_it_prints_is_kept(start: Start) -> None:
    with start() as process:
        process.greet()
        process.begin("one", b"")
        process.order(b"print", 60)
        assert "a last word" in process.tail()


WORKER = "tests.support.scripted_worker"


def deed(act: Act, text: str = "", number: int = 0) -> bytes:
    return msgspec.msgpack.encode(Deed(act=act, text=text, number=number))


def test_questions_are_answered_one_after_the_other() -> None:
    with interview(WORKER) as worker:
        assert worker.ask("echo", b"to you: ", deed(Act.ECHO, "hello")) == b"to you: hello"
        assert worker.ask("echo", b"", deed(Act.ECHO, "again")) == b"again"


def test_a_refusal_is_wrong_input() -> None:
    with pytest.raises(InputError, match=r"^no such thing$"), interview(WORKER) as worker:
        worker.ask("do", b"", deed(Act.REFUSE, "no such thing"))


def test_refused_arguments_are_wrong_input() -> None:
    with pytest.raises(InputError, match="unknown target"), interview(WORKER, ("--refuse", "unknown target")):
        pytest.fail("it did not refuse")


def test_a_failure_is_named() -> None:
    with pytest.raises(EngineError, match="RuntimeError: it broke"), interview(WORKER) as worker:
        worker.ask("do", b"", deed(Act.FAIL, "it broke"))


def test_a_death_is_told_with_the_last_words() -> None:
    with pytest.raises(EngineError, match=r"ended without an answer; .*about to die"), interview(WORKER) as worker:
        worker.ask("do", b"", deed(Act.KILL, number=signal.SIGKILL))


def test_one_that_takes_too_long_is_told_as_an_error() -> None:
    def ask() -> None:
        with interview(WORKER) as worker:
            worker.begin("do", b"")
            worker.order(deed(Act.HANG), 0.01)

    with pytest.raises(EngineError, match="ended without an answer"):
        ask()


def test_a_program_that_is_none_is_an_error_with_its_reason() -> None:
    with pytest.raises(EngineError, match="No module named"), interview("kintune.no_such_worker"):
        pytest.fail("it started")
