from __future__ import annotations

import signal

import msgspec
import pytest

from kintune.errors import EngineError, InputError
from kintune.wire.worker_client import interview
from tests.support.script import Act, Deed

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


def test_a_program_that_is_none_is_an_error_with_its_reason() -> None:
    with pytest.raises(EngineError, match="No module named"), interview("kintune.no_such_worker"):
        pytest.fail("it started")
