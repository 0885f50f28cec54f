"""Prepares the network of a run that goes on, and says whether it is still the one that the run's events are about."""

from __future__ import annotations

from kintune.core.config import JobSpec
from kintune.core.stage_results import Prepared
from kintune.tuning.job.backend import CompilerBackend

__all__ = ["prepare_again"]


def prepare_again(backend: CompilerBackend, spec: JobSpec, before: Prepared) -> str:
    """Prepare the network once more; return in a line why a run cannot go on with it, or nothing.

    `before` is what an earlier process of the run has prepared.
    """
    now = backend.prepare(spec)
    if _content(now) == _content(before):
        return ""
    return (
        f"{before.model_name} is another network than when this run began: the model or Kintune has changed since; "
        "tune it again, in a new run"
    )


def _content(prepared: Prepared) -> object:
    """Returns what a run's decisions depend on: digests of the model, unless it is quantised, workloads and sketches.

    The scales of a quantised model may round differently the next time, which changes its digest.
    """
    digest = prepared.model_digest if prepared.quantised is None else ""
    workloads = sorted(subgraph.workload for subgraph in prepared.subgraphs)
    return digest, workloads, sorted(sketch.digest for sketch in prepared.sketches)
