"""The form in which a trained model is kept: its trees, and the subgraphs whose samples it has seen."""

from __future__ import annotations

import msgspec

from kintune.core.subject import Subject

__all__ = ["TrainedModel"]


class TrainedModel(msgspec.Struct, frozen=True):
    """A family's cost model as one blob: `trees` as `kintune.search.cost_model.Trees` serialises them."""

    trees: bytes
    subjects: tuple[Subject, ...] = ()

    def to_bytes(self) -> bytes:
        """What is kept in the blob store."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, blob: bytes) -> TrainedModel:
        """What `to_bytes` made, or the bare trees that earlier versions kept, of unknown subgraphs."""
        try:
            return msgspec.msgpack.decode(blob, type=cls)
        except msgspec.MsgspecError:
            return cls(blob)
