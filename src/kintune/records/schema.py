"""The tables of the records, in portable SQL.

Every table whose rows carry a `checksum` is written and read through `kintune.records.integrity`.  Large immutable
bytes (programs, sketches, cost models) live in `blobs` under the digest of their content, and other rows name them.
Times of day are ISO 8601 in UTC; durations are seconds, kernel times microseconds; JSON and msgpack are kept as the
bytes that were checksummed.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "FORMAT",
    "METADATA",
    "NEIGHBOURS",
    "SCHEMA_VERSION",
    "blobs",
    "device_types",
    "events",
    "machine_facts",
    "measurements",
    "meta",
    "model_versions",
    "runs",
    "sketches",
    "workloads",
]

FORMAT = "kintune-records"
"""Value of `meta.format`, by which a database is known to be ours."""

NEIGHBOURS = "service_"
"""Prefix of the names of a service's tables, which may be in the same database."""

SCHEMA_VERSION = 3
"""Version of the tables below and of `meta`; every change raises it and adds a step to `kintune.records.migrations`."""

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Digest = String(32)
_Time = String(32)
_RowId = BigInteger().with_variant(Integer(), "sqlite")  # SQLite numbers rows by itself only for INTEGER


def _checksum() -> Column[str]:
    return Column("checksum", _Digest, nullable=False)


meta = Table(
    "meta",
    METADATA,
    Column("key", String(32), primary_key=True),
    Column("value", Text, nullable=False),
    _checksum(),
)

blobs = Table(
    "blobs",
    METADATA,
    Column("digest", _Digest, primary_key=True),
    Column("codec", String(8), nullable=False),
    Column("bytes", LargeBinary, nullable=False),
)

device_types = Table(
    "device_types",
    METADATA,
    Column("digest", _Digest, primary_key=True),
    Column("json", Text, nullable=False),
    _checksum(),
)

workloads = Table(
    "workloads",
    METADATA,
    Column("digest", _Digest, primary_key=True),
    Column("name", Text, nullable=False),
    Column("operator", Text, nullable=False),
    Column("signature", Text, nullable=False),
    Column("flops", Double, nullable=False),
    Column("blob", _Digest, ForeignKey("blobs.digest"), nullable=False),
    _checksum(),
)

sketches = Table(
    "sketches",
    METADATA,
    Column("digest", _Digest, primary_key=True),
    Column("workload", _Digest, ForeignKey("workloads.digest"), nullable=False, index=True),
    Column("blob", _Digest, ForeignKey("blobs.digest"), nullable=False),
    _checksum(),
)

runs = Table(
    "runs",
    METADATA,
    Column("run_id", String(64), primary_key=True),
    Column("key", _Digest, nullable=False, index=True),
    Column("model_name", Text, nullable=False),
    Column("model_digest", String(64), nullable=False),
    Column("spec", LargeBinary, nullable=False),
    Column("state", String(16), nullable=False),
    Column("created", _Time, nullable=False),
    Column("updated", _Time, nullable=False),
    Column("active_seconds", Double, nullable=False),
    Column("seeds", Text, nullable=False),
    Column("versions", Text, nullable=False),
    Column("summary", LargeBinary),
    _checksum(),
)

events = Table(
    "events",
    METADATA,
    Column("run_id", String(64), ForeignKey("runs.run_id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Double, nullable=False),
    Column("stage", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("idx", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("codec", String(8), nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("cause", Text, nullable=False),
    Column("seconds", Double, nullable=False),
    _checksum(),
)

measurements = Table(
    "measurements",
    METADATA,
    Column("id", _RowId, primary_key=True),
    Column("device_type", _Digest, ForeignKey("device_types.digest"), nullable=False),
    Column("compiler", String(64), nullable=False),
    Column("workload", _Digest, ForeignKey("workloads.digest"), nullable=False),
    Column("candidate", _Digest, nullable=False),
    Column("sketch", _Digest, ForeignKey("sketches.digest")),  # null: the untuned program
    Column("decisions", LargeBinary, nullable=False),
    Column("status", String(16), nullable=False),
    Column("times_us", LargeBinary, nullable=False),
    Column("cause", Text, nullable=False),
    Column("confirmed", LargeBinary),
    Column("believed_us", Double),  # median of the confirmed times, else of the first ones; null: no time to believe
    Column("features", LargeBinary, nullable=False),
    Column("feature_version", String(32), nullable=False),
    Column("origin", String(32), nullable=False),
    Column("predicted", Double),
    Column("run_id", String(64), ForeignKey("runs.run_id"), index=True),
    Column("created", _Time, nullable=False),
    _checksum(),
    UniqueConstraint("device_type", "compiler", "workload", "candidate"),
    Index(None, "workload", "device_type", "compiler", "believed_us"),
)

model_versions = Table(
    "model_versions",
    METADATA,
    Column("id", _RowId, primary_key=True),
    Column("blob", _Digest, ForeignKey("blobs.digest"), nullable=False),
    Column("family", Text, nullable=False),
    Column("device_type", _Digest, ForeignKey("device_types.digest"), nullable=False),
    Column("features", String(32), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("created", _Time, nullable=False),
    _checksum(),
    UniqueConstraint("device_type", "family", "features", "blob"),
)

machine_facts = Table(
    "machine_facts",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("subject", String(64), primary_key=True),
    Column("json", Text, nullable=False),
    Column("created", _Time, nullable=False),
    _checksum(),
)
