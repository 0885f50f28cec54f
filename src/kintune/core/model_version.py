"""The identity of a trained cost model."""

from __future__ import annotations

import msgspec

__all__ = ["ModelVersion"]


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
