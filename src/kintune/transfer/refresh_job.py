"""The process that retrains family models: `python -m kintune.transfer.refresh_job --fd N`.

To the scheduler it is a job with one stage on a host, so it never disturbs a measurement.  It only reads the records;
the trained models are its answer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from kintune.core.knowledge import ModelVersion, TrainingConditions
from kintune.core.messages import Committed, Finished, OfferStages, StageClosed, Work
from kintune.core.stage import Demand, Stage
from kintune.wire.job_loop import JOB_WORKER, Saying, job_main
from kintune.wire.staging import find

__all__ = ["FreshModel", "RefreshJob", "RefreshSpec", "main"]

_TIMEOUT_S = 1800.0
_STAGE = "train"
_DONE = Finished(False, "", b"")


class RefreshSpec(msgspec.Struct, frozen=True):
    """The path of the records, the conditions of the measurements to train on, and the family algorithm."""

    records: str
    conditions: TrainingConditions
    families: str = "op"
    seed: int = 0


class FreshModel(msgspec.Struct, frozen=True):
    """The version of a family's trained model, and the bytes whose digest it has."""

    version: ModelVersion
    blob: bytes


class RefreshJob:
    """One stage, whose one item trains all families."""

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """Offers the stage, unless it is done."""
        self._spec = msgspec.msgpack.decode(spec, type=RefreshSpec)
        if history:
            return (_DONE,)
        stage = Stage(_STAGE, job, _STAGE, Demand(cores=1), affinity=job, duration_key=_STAGE)
        return (OfferStages((Work(stage, JOB_WORKER, b"", (b"",), _TIMEOUT_S),), {}),)

    def accept(self, event: Committed, more: bool) -> Iterable[Saying]:
        """Does nothing: the models are stored by the receiver."""
        return ()

    def closed(self, closed: StageClosed) -> Iterable[Saying]:
        """Finishes the job."""
        return (_DONE,)

    def stop(self, reason: str) -> Iterable[Saying]:
        """Does nothing: the job ends by itself."""
        return ()

    def begin(self, kind: str, context: bytes) -> None:
        """Does nothing: there is no context."""

    def item(self, payload: bytes) -> bytes:
        """Trains, and returns the encoded models."""
        from kintune.records import Store
        from kintune.transfer.pretrain import pack, train_all

        spec = self._spec
        with _records(spec.records) as records, Store.open(records, create=False) as store, store.snapshot():
            trained = train_all(store, spec.conditions, spec.families, seed=spec.seed)
        return msgspec.msgpack.encode([FreshModel(one.known.version, pack(one.known)) for one in trained])


@contextmanager
def _records(path: str) -> Iterator[str]:
    """Yield the path of the records.

    A copy in the staging directory is copied again: other processes read it, and opening a database writes to it.
    """
    brought = find(path)
    if brought == path:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kintune-records-") as folder:
        yield shutil.copyfile(brought, f"{folder}/records.sqlite")


def main(argv: Sequence[str] | None = None) -> None:
    """Serves until the channel is closed."""
    job_main(lambda _arguments: RefreshJob(), argv)


if __name__ == "__main__":
    main()
