"""What earlier jobs learnt that may serve this one: programs of other workloads, and trained family models."""

from __future__ import annotations

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.model_version import ModelVersion
from kintune.core.subject import Subject

__all__ = ["Knowledge", "KnownModel", "KnownProgram"]


class KnownProgram(msgspec.Struct, frozen=True):
    """A program that was good for `subject`, a workload that need not be part of this job.

    `speed` is relative to the fastest program known of that workload, so 1.0 is the best.
    """

    subject: Subject
    sketch: Sketch
    candidate: Candidate
    speed: float


class KnownModel(msgspec.Struct, frozen=True):
    """A family's trained model: its identity, its bytes, and the subgraphs whose samples it was trained on."""

    version: ModelVersion
    blob: bytes
    subjects: tuple[Subject, ...] = ()


class Knowledge(msgspec.Struct, frozen=True):
    """Suggestions, never facts: a search that they do not help must end up where it would have without them."""

    programs: tuple[KnownProgram, ...] = ()
    models: tuple[KnownModel, ...] = ()
