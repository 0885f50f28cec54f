"""The version of Kintune."""

from __future__ import annotations

import msgspec

__all__ = ["COMPILER_ONLY", "ELEMENTARY", "FEATURES", "ModelVersion", "__version__"]


__version__ = "0.1.0"


ELEMENTARY = "elementary-1"
"""The version of the functions: times of programs that were compiled with others are not comparable."""


FEATURES = "traits-1, per-store-pooled-1"
"""Version of what `kintune.search.features` and `kintune.compiler.space.features` tell of a candidate.

Models and records that name another are not comparable.
"""

COMPILER_ONLY = "per-store-pooled-1"
"""The version before: rows of what the compiler tells, nothing else."""


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
