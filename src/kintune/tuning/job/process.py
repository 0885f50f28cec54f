"""The process of one tuning job: `python -m kintune.tuning.job.process --fd N`, started by the engine."""

from __future__ import annotations

from collections.abc import Sequence

from kintune.hardware.software import forbid_torch
from kintune.wire.job_loop import JobHandler, job_main

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the engine closes the channel."""
    job_main(_start, argv)


def _start(_arguments: list[str]) -> JobHandler:
    forbid_torch()  # the import of a PyTorch model allows it again

    from kintune.core.version import FEATURES
    from kintune.tuning.job.job import TuningJob
    from kintune.tuning.job.tvm_backend import TvmBackend

    return TuningJob(TvmBackend(), FEATURES)


if __name__ == "__main__":
    main()
