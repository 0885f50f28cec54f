"""The process of one tuning job: `python -m kintune.job.process --fd N`, started by the engine."""

from __future__ import annotations

from collections.abc import Sequence

from kintune.wire.job import JobHandler, job_main
from kintune.without_torch import forbid_torch

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    job_main(_start, argv)


def _start(_arguments: list[str]) -> JobHandler:
    forbid_torch()  # until a model of its own is to be imported

    from kintune.job.job import TuningJob
    from kintune.job.workshop import Workshop
    from kintune.space.feature_version import FEATURES

    return TuningJob(Workshop(), FEATURES)


if __name__ == "__main__":
    main()
