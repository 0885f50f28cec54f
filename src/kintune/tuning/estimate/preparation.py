"""A model imported and split as a tuning job would do it, by a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from kintune.core.device_about import DeviceAbout
from kintune.core.payloads import JobSpec, ModelRef, Options, Prepared
from kintune.hardware.cores import choose_cores
from kintune.hardware.locks import cores_lock
from kintune.hardware.software import require_tried_versions
from kintune.wire.interview import interview

__all__ = ["prepare", "preparing"]

Prepare = Callable[[ModelRef], Prepared]


def prepare(ref: ModelRef, about: DeviceAbout) -> Prepared:
    """The model's subgraphs as a job on this device would see them.

    Raises InputError when the model cannot be used, EngineError when its import crashes.
    """
    spec = JobSpec(
        run_id="estimate",
        model=ref,
        device_type=about.device_type,
        protocol=about.protocol,
        options=Options(trials=1),
        output=os.devnull,
    )
    with interview("kintune.tuning.job.process") as job:
        return msgspec.msgpack.decode(job.first_work("estimate", msgspec.msgpack.encode(spec)), type=Prepared)


@contextmanager
def preparing(
    *, target: str = "native", threads: int | None = None, on_wait: Callable[[str], None] | None = None
) -> Iterator[Prepare]:
    """A function that prepares models one after the other, on cores of which nobody else is timing anything.

    `on_wait` is told who holds them.  Raises InputError for a target or a number of threads that cannot be.
    """
    require_tried_versions()
    cores = choose_cores(threads or 0)
    with cores_lock(cores, on_wait):
        with interview("kintune.workers.device_worker", ("--target", target, "--threads", str(len(cores)))) as device:
            about = msgspec.msgpack.decode(device.about, type=DeviceAbout)
        yield lambda ref: prepare(ref, about)
