"""The loop of a job process: a worker for its own stages that is told what was committed and says what to do next."""

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
"""What a job says of itself."""


class JobHandler(Handler, Protocol):
    """A job as its process runs it.  Whatever a method returns is sent, in order.

    An exception from any of these but `begin` and `item` ends the process: the engine starts another from the events
    committed so far, and fails the job when that does not help.  An `InputError` from `open` refuses the job for good;
    one that says that a file could not be written (`unwritten`) ends it so that it can be gone on with.
    """

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Fold `history`, then say what is to be done.

        A stage of which `history` holds only some items is offered again whole, under the same id and with the same
        items: the engine runs those that are missing.
        """

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """One more event is committed; with `more` to be told at once, what is to be shown can wait for the last."""

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """A stage is over; items of a droppable work for which no event came were dropped."""

    def stop(self, reason: str) -> Iterable[Saying]:
        """Finish with what there is."""


def job_main(start: Callable[[list[str]], JobHandler], argv: Sequence[str] | None = None) -> None:
    """Be a job process until the front closes the channel; `start` makes the handler from the other arguments."""
    channel, arguments = connect(argv)
    with starting():
        handler = start(arguments)
    serve_job(channel, hello(JOB_WORKER), handler)


def serve_job(channel: Channel[ToWorker], greeting: Hello, handler: JobHandler) -> None:
    """Greet, then do what comes until `Shutdown` or the end of the stream."""
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
