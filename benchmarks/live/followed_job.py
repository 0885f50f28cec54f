"""A tuning job that measures a given list of candidates, so that schedules can be compared on the same work.

It searches as any job does, at the same cost, and then selects what `KINTUNE_FOLLOW` has for that model and round.  It
times each for as many seconds as `KINTUNE_SECONDS` says, so that the device is as busy as a slower one would be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from kintune.core.config import JobSpec
from kintune.core.messages import Committed
from kintune.core.plan import Round
from kintune.core.stage_results import Selected
from kintune.core.version import FEATURES
from kintune.tuning.job.job import TuningJob
from kintune.tuning.job.tvm_backend import TvmBackend
from kintune.wire.job_loop import Saying, job_main

FOLLOW = "KINTUNE_FOLLOW"
"""The environment variable that names the file with the selections, by model and round."""
SECONDS = "KINTUNE_SECONDS"
"""The environment variable with the seconds for which a candidate runs again and again."""


class FollowedJob(TuningJob):
    """Selects what was selected before, and has it timed at length."""

    def open(self, job: str, spec: bytes, history: Sequence[Committed]) -> Iterable[Saying]:
        """The protocol is this benchmark's."""
        given = msgspec.msgpack.decode(spec, type=JobSpec)
        protocol = msgspec.structs.replace(given.protocol, repeats=1000, max_seconds=float(os.environ[SECONDS]))
        return super().open(job, msgspec.msgpack.encode(msgspec.structs.replace(given, protocol=protocol)), history)

    def _run_select(self, payload: bytes) -> bytes:
        plan = msgspec.msgpack.decode(payload, type=Round)
        super()._run_select(payload)
        followed = msgspec.msgpack.decode(Path(os.environ[FOLLOW]).read_bytes(), type=dict[str, dict[int, Selected]])
        return msgspec.msgpack.encode(followed[self._state.spec.model.name][plan.number])


if __name__ == "__main__":
    job_main(lambda _arguments: FollowedJob(TvmBackend(), FEATURES))
