"""A tuning job that measures a given list of candidates, so that schedules can be compared on the same work.

It searches as any job does, at the same cost, and then selects what `KINTUNE_FOLLOW` has for that model and round.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kintune.job.job import TuningJob
from kintune.job.payloads import Selected
from kintune.job.workshop import Workshop
from kintune.search.plan import Round
from kintune.space.feature_version import FEATURES
from kintune.wire.job import job_main

FOLLOW = "KINTUNE_FOLLOW"
"""The environment variable that names the file with the selections, by model and round."""


class FollowedJob(TuningJob):
    """Selects what was selected before."""

    def _run_select(self, payload: bytes) -> bytes:
        plan = msgspec.msgpack.decode(payload, type=Round)
        super()._run_select(payload)
        followed = msgspec.msgpack.decode(Path(os.environ[FOLLOW]).read_bytes(), type=dict[str, dict[int, Selected]])
        return msgspec.msgpack.encode(followed[self._state.spec.model.name][plan.number])


if __name__ == "__main__":
    job_main(lambda _arguments: FollowedJob(Workshop(), FEATURES))
