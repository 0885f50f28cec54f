"""The loop of a worker process: it gets a stage's context, then does the stage's items one at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from kintune.core.messages import Begin, Hello, Item, ItemDone, ItemFailed, Shutdown, ToWorker
from kintune.errors import DeviceUnwell, InputError, StorageError, WireError
from kintune.wire.channel import Channel, tidy
from kintune.wire.child import connect, starting

__all__ = ["WIRE_VERSION", "Handler", "StageRunner", "hello", "main", "one_line", "refusal", "serve", "unwritten"]

WIRE_VERSION = "1"
"""The value of `Hello.version`; the engine refuses a worker of another version."""


class Handler(Protocol):
    """The work of one kind of worker.

    Any exception fails the item; an `InputError` refuses it for good.  After an exception for which `unwritten` is
    true, the item can be done again later.
    """

    def begin(self, kind: str, context: bytes) -> None:
        """Begin a stage: the items that follow are of this kind and share `context`."""

    def item(self, payload: bytes) -> bytes:
        """Do one item; return its result."""


def hello(worker: str, about: bytes = b"") -> Hello:
    """The first message of this process as a worker of the kind `worker`."""
    return Hello(worker=worker, pid=os.getpid(), version=WIRE_VERSION, about=about)


def main(worker: str, start: Callable[[list[str]], tuple[bytes, Handler]], argv: Sequence[str] | None = None) -> None:
    """Be a worker of the kind `worker` until the front closes the channel.

    Args:
        worker: the kind, as the engine's commands name it.
        start: takes the arguments that are not about the channel, and returns the worker's description of itself
            (`Hello.about`) and the handler.  An `InputError` from it is handed to the front, which raises it.
        argv: the arguments, by default those of the process.
    """
    channel, arguments = connect(argv)
    try:
        with starting():
            about, handler = start(arguments)
    except InputError as error:
        channel.send(refusal(error))
        return
    serve(channel, hello(worker, about), handler)


def serve(channel: Channel[ToWorker], greeting: Hello, handler: Handler) -> None:
    """Send the greeting, then handle messages until `Shutdown` or the end of the stream.

    Raises:
        WireError: a message came that is not for a worker.
    """
    runner = StageRunner(handler)
    try:
        channel.send(greeting)
        while (message := channel.recv()) is not None:
            match message:
                case Begin():
                    runner.begin(message)
                case Item():
                    runner.answer(channel, message)
                case Shutdown():
                    return
                case _:
                    raise WireError(f"a worker was sent {type(message).__name__}, which is for job processes")
    except ConnectionError:
        return  # the front is gone


class StageRunner:
    """Runs the items of one stage after the other by a handler, and turns its exceptions into answers."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._stage: tuple[str, int] | None = None
        self._unusable: Exception | None = None

    def begin(self, begin: Begin) -> None:
        """Begin a stage.  If its context cannot be used, each of its items fails with that error."""
        self._stage = (begin.stage, begin.attempt)
        self._unusable = None
        try:
            self._handler.begin(begin.kind, begin.context)
        except Exception as error:
            self._unusable = error

    def answer(self, channel: Channel[ToWorker], item: Item) -> None:
        """Do one item and send its answer; a result that is too large to send is a failure of the item."""
        answer = self._do(item)
        try:
            channel.send(answer)
        except WireError as error:
            channel.send(_failed(item, error))

    def _do(self, item: Item) -> ItemDone | ItemFailed:
        if self._stage != (item.stage, item.attempt):
            return _failed(item, WireError(f"item of {item.stage}#{item.attempt}, which was not begun here"))
        if self._unusable is not None:
            return _failed(item, self._unusable)
        try:
            payload = self._handler.item(item.payload)
        except Exception as error:
            return _failed(item, error)
        return ItemDone(item.stage, item.attempt, item.index, payload)


def refusal(error: Exception) -> ItemFailed:
    """Return the message that a process sends instead of `Hello` when it cannot begin; its stage is empty."""
    return _failed(Item(stage="", attempt=0, index=0, payload=b""), error)


def unwritten(error: BaseException) -> bool:
    """Return whether a file could not be written for lack of space, or because storage fails for now."""
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or isinstance(error, StorageError)


def one_line(error: BaseException) -> str:
    """Return the first line of the error's text that is not empty, shortened.

    The name of its type comes before it, except for an `InputError` or a `StorageError`, which are written for users.
    """
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if not isinstance(error, InputError | StorageError):
        name = type(error).__name__
        text = f"{name}: {text}" if text else name
    return tidy(text)


def _failed(item: Item, error: Exception) -> ItemFailed:
    refused, unwell = isinstance(error, InputError), isinstance(error, DeviceUnwell)
    cause = one_line(error)
    return ItemFailed(item.stage, item.attempt, item.index, cause, refused, unwell, unwritten(error))
