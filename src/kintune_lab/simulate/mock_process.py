"""The process of a mock job: `python -m kintune_lab.simulate.mock_process --fd N`.

It asks for the stages of its plan, each once those before it are over; what becomes of their items does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from kintune.core.messages import Committed, Finished, OfferStages, StageClosed, Work
from kintune.wire.job_loop import JOB_WORKER, Saying, job_main
from kintune_lab.simulate.mock_worker import MockHandler, item
from kintune_lab.simulate.plan import PlannedJob, PlannedStage

__all__ = ["MOCK_WORKER", "STOPPED", "MockProcess", "main"]

MOCK_WORKER = "mock"
"""The kind of worker that runs stages which need no process of their own."""

STOPPED = "stopped"
"""The reason with which a job finishes that was asked to stop."""

_PATIENCE = 10.0  # times as long as it should take, and this many seconds, before an item is given up


class MockProcess(MockHandler):
    """A `PlannedJob` as `kintune.wire.job_loop.JobHandler`."""

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Ask for what follows from the history."""
        plan = msgspec.msgpack.decode(spec, type=PlannedJob)
        self._tells = plan.tells
        self._over = {event.stage for event in history}
        self._waiting = [planned for planned in plan.stages if planned.stage.id not in self._over]
        self._asked: set[str] = set()
        self._reason = "done"
        return self._next()

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """An item has ended; its stage is closed next."""
        return ()

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """A stage is over: ask for those that waited for it."""
        self._over.add(closed.stage)
        self._asked.discard(closed.stage)
        return self._next()

    def stop(self, reason: str) -> Iterable[Saying]:
        """Ask for nothing more."""
        self._reason = STOPPED
        self._waiting.clear()
        return self._next()

    def _next(self) -> Iterable[Saying]:
        ready = [planned for planned in self._waiting if self._over.issuperset(planned.stage.after)]
        self._waiting = [planned for planned in self._waiting if planned not in ready]
        self._asked.update(planned.stage.id for planned in ready)
        if ready:
            ahead = Counter(planned.stage.duration_key for planned in self._waiting)
            yield OfferStages(tuple(_work(planned) for planned in ready), dict(ahead) if self._tells else None)
        elif not self._waiting and not self._asked:
            yield Finished(False, self._reason, b"")


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    job_main(lambda _arguments: MockProcess(), argv)


def _work(planned: PlannedStage) -> Work:
    kind = MOCK_WORKER if planned.stage.affinity is None else JOB_WORKER
    return Work(planned.stage, kind, b"", (item(planned.seconds),), _PATIENCE * (1 + planned.seconds))


if __name__ == "__main__":
    main()
