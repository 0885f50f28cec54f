"""A job that offers what its plot says and folds what is committed: `python -m tests.support.scripted_job --fd N`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence

import msgspec

from kintune.core.messages import Committed, Finished, OfferStages, Progress, StageClosed, ToWorker
from kintune.errors import InputError, StorageError
from kintune.wire.channel import Channel
from kintune.wire.child import connect
from kintune.wire.job_loop import JOB_WORKER, Saying, serve_job
from kintune.wire.worker_loop import hello
from tests.support.script import Moment, Plot, Trap
from tests.support.scripted_worker import ScriptedHandler, first_time

__all__ = ["Told", "main"]


class Told(msgspec.Struct, frozen=True):
    """The summary of a scripted job: the events it knows of, and the stages that were closed while it lived."""

    events: tuple[Committed, ...]
    closed: tuple[str, ...]
    stopped: str = ""


class ScriptedJob(ScriptedHandler):
    """A job as a fold over events: it is in the first round of which something is missing."""

    def __init__(self, channel: Channel[ToWorker]) -> None:
        super().__init__(channel)
        self._plot = Plot(())
        self._events: list[Committed] = []
        self._closed: list[str] = []
        self._stopped = ""
        self._moments: dict[Moment, int] = {}
        self._offered = 0

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Fold the history and offer the round that it does not complete."""
        self._plot = msgspec.msgpack.decode(spec, type=Plot)
        if self._plot.refuse:
            raise InputError(self._plot.refuse)
        if self._plot.full:
            raise StorageError(self._plot.full)
        self._events = list(history)
        self._pass(Moment.START)
        if history:
            time.sleep(self._plot.opening_s)
        if not self._plot.silent:
            yield from self._go_on()
        self._pass(Moment.OPEN)

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """Fold the event."""
        self._events.append(event)
        self._pass(Moment.ACCEPT)
        yield Progress(b"%d" % len(self._events))

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """Offer the next round if this one is over."""
        self._closed.append(closed.stage)
        self._pass(Moment.CLOSED)
        yield from self._go_on()

    def stop(self, reason: str) -> Iterable[Saying]:
        """Finish once the stages that are open are closed."""
        self._stopped = reason
        self._pass(Moment.STOP)
        yield from self._go_on()

    def _go_on(self) -> Iterable[Saying]:
        done = {(event.stage, event.index) for event in self._events}
        for number, works in enumerate(self._plot.rounds):
            open_works = tuple(
                work
                for work in works
                if work.stage.id not in self._closed
                and (not work.items or any((work.stage.id, index) not in done for index in range(len(work.items))))
            )
            if open_works and number < self._offered:
                return
            if open_works and not self._stopped:
                self._offered = number + 1
                yield OfferStages(open_works)
                return
        yield Finished(False, self._stopped or "plot told", self._summary())

    def _summary(self) -> bytes:
        return msgspec.msgpack.encode(Told(tuple(self._events), tuple(self._closed), self._stopped))

    def _pass(self, moment: Moment) -> None:
        number = self._moments.get(moment, 0)
        self._moments[moment] = number + 1
        for trap in self._plot.traps:
            if (trap.moment, trap.number) == (moment, number):
                self._spring(trap)

    def _spring(self, trap: Trap) -> None:
        if first_time(trap.once):
            print(f"caught at {trap.moment.value} {trap.number}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def main(argv: Sequence[str] | None = None) -> None:
    """Be the job."""
    channel, _ = connect(argv)
    serve_job(channel, hello(JOB_WORKER), ScriptedJob(channel))


if __name__ == "__main__":
    main()
