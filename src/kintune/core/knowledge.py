"""What earlier jobs learnt that may serve this one: programs of other workloads, and trained family models."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from kintune.core.candidate import Candidate, Sketch
from kintune.core.workload import Subject

__all__ = ["Knowledge", "KnownModel", "KnownProgram", "ModelVersion", "TrainedModel", "TrainingConditions"]


class KnownProgram(msgspec.Struct, frozen=True):
    """A program that was good for `subject`, a workload that need not be part of this job.

    `speed` is relative to the fastest program known of that workload, so 1.0 is the best.
    """

    subject: Subject
    sketch: Sketch
    candidate: Candidate
    speed: float


class ModelVersion(msgspec.Struct, frozen=True):
    """One trained cost model: the digest of its bytes in the blob store, and what it was trained for and on.

    `family` is the family's key, `device_type` the digest of the device type, `features` the version of the feature
    extraction, `rows` the number of samples.
    """

    blob: str
    family: str
    device_type: str
    features: str
    rows: int


class KnownModel(msgspec.Struct, frozen=True):
    """A family's trained model, and the subgraphs whose samples it was trained on.

    `blob` is `TrainedModel.trees`, the serialised trees alone; `version.blob` is the digest of a whole `TrainedModel`.
    """

    version: ModelVersion
    blob: bytes
    subjects: tuple[Subject, ...] = ()


class Knowledge(msgspec.Struct, frozen=True):
    """Suggestions to a search, not facts: a search that they do not help must end as well as one without them."""

    programs: tuple[KnownProgram, ...] = ()
    models: tuple[KnownModel, ...] = ()


class TrainingConditions(NamedTuple):
    """A device type (its digest), the compiler's version, and the version of the features."""

    device_type: str
    compiler: str
    feature_version: str


class TrainedModel(msgspec.Struct, frozen=True):
    """A family's cost model as one blob: `trees` as `kintune.search.cost_model.Trees` serialises them."""

    trees: bytes
    subjects: tuple[Subject, ...] = ()

    def to_bytes(self) -> bytes:
        """Return the bytes for the blob store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, blob: bytes) -> TrainedModel:
        """Decode what `to_bytes` returned, or the bare trees that earlier versions stored without their subgraphs."""
        try:
            return msgspec.msgpack.decode(blob, type=cls)
        except msgspec.MsgspecError:
            return cls(blob)
