"""The loop of a job process: a worker for its own stages that is told the committed events and offers new stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

from kintune.core.messages import (
    Accept,
    Begin,
    Committed,
    Finished,
    Hello,
    Item,
    OfferStages,
    Open,
    Progress,
    Shutdown,
    StageClosed,
    Stop,
    ToWorker,
)
from kintune.errors import InputError
from kintune.wire.channel import Channel
from kintune.wire.child import connect, starting
from kintune.wire.worker_loop import Handler, StageRunner, hello, refusal, unwritten

__all__ = ["JOB_WORKER", "JobHandler", "Saying", "job_main", "serve_job"]

JOB_WORKER = "job"
"""The kind of worker that a job's own process is, in `Work.worker` and `Hello.worker`."""

Saying: TypeAlias = OfferStages | Progress | Finished
"""The messages of a job about itself."""


class JobHandler(Handler, Protocol):
    """A job as its process runs it.  The messages that a method returns are sent, in order.

    An exception from any method but `begin` and `item` ends the process.  The engine then starts another one from the
    events committed so far, and fails the job when that does not help.  An `InputError` from `open` refuses the job for
    good; an error for which `unwritten` is true ends it so that it can be resumed.
    """

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Restore the job from the events `history`, and return its next messages.

        A stage of which `history` holds only some items is offered again whole, under the same id and with the same
        items: the engine runs those that are missing.
        """

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """Take in one more committed event.

        With `more`, the next message is here already, so that a progress report can wait for the last event.
        """

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """Take in the end of a stage; items of a droppable work for which no event came were dropped."""

    def stop(self, reason: str) -> Iterable[Saying]:
        """Finish with the results so far."""


def job_main(start: Callable[[list[str]], JobHandler], argv: Sequence[str] | None = None) -> None:
    """Be a job process until the front closes the channel; `start` makes the handler from the other arguments."""
    channel, arguments = connect(argv)
    with starting():
        handler = start(arguments)
    serve_job(channel, hello(JOB_WORKER), handler)


def serve_job(channel: Channel[ToWorker], greeting: Hello, handler: JobHandler) -> None:
    """Send the greeting, then handle messages until `Shutdown` or the end of the stream."""
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
                case Open():
                    try:
                        _say(channel, handler.open(message.job, message.spec, message.history))
                    except Exception as error:
                        if not (isinstance(error, InputError) or unwritten(error)):
                            raise
                        channel.send(refusal(error))
                        return
                case Accept():
                    _say(channel, handler.accept(message.event, channel.has_more))
                case StageClosed():
                    _say(channel, handler.closed(message))
                case Stop():
                    _say(channel, handler.stop(message.reason))
    except ConnectionError:
        return  # the front is gone


def _say(channel: Channel[ToWorker], sayings: Iterable[Saying]) -> None:
    for saying in sayings:
        channel.send(saying)
