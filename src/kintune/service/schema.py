"""The tables of the service, in portable SQL; what is measured lies in the records, beside them.

Times are seconds since 1970, UTC.  JSON is kept as text.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "METADATA",
    "audit",
    "commands",
    "device_types",
    "job_runs",
    "jobs",
    "machines",
    "models",
    "steps",
    "tokens",
    "users",
    "webhooks",
]

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_RowId = BigInteger().with_variant(Integer(), "sqlite")
_File = String(64)


def _id() -> Column[int]:
    return Column("id", _RowId, primary_key=True)


def _time(name: str, *, needed: bool = True) -> Column[float]:
    return Column(name, Double, nullable=not needed)


users = Table(
    "service_users",
    METADATA,
    _id(),
    Column("name", String(64), nullable=False, unique=True),
    Column("quota", Text, nullable=False),
    Column("disabled", Boolean, nullable=False),
    _time("created"),
)

tokens = Table(
    "service_tokens",
    METADATA,
    _id(),
    Column("user", _RowId, ForeignKey("service_users.id"), nullable=False, index=True),
    Column("hash", String(64), nullable=False, unique=True),
    Column("hint", String(16), nullable=False),
    Column("label", String(64), nullable=False),
    Column("scope", String(16), nullable=False),
    _time("created"),
    _time("expires", needed=False),
    _time("revoked", needed=False),
    _time("used", needed=False),
)

models = Table(
    "service_models",
    METADATA,
    _id(),
    Column("owner", _RowId, ForeignKey("service_users.id"), nullable=False),
    Column("name", String(128), nullable=False),
    Column("file", _File, nullable=False, index=True),
    Column("size", BigInteger, nullable=False),
    Column("kind", String(16), nullable=False, server_default="model"),  # or "inputs": a set of arrays
    Column("findings", Text),  # null: not checked yet
    _time("created"),
    _time("expires", needed=False),
    _time("deleted", needed=False),
    UniqueConstraint("owner", "file"),
)

jobs = Table(
    "service_jobs",
    METADATA,
    Column("id", String(16), primary_key=True),
    Column("owner", _RowId, ForeignKey("service_users.id"), nullable=False),
    Column("model", _RowId, ForeignKey("service_models.id"), nullable=False),
    Column("wanted", Text, nullable=False),
    Column("priority", Double, nullable=False),
    Column("share", Boolean, nullable=False),
    Column("minutes", Double, nullable=False),
    Column("idempotency_key", String(128)),
    Column("retry_of", String(16), ForeignKey("service_jobs.id")),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("run_id", String(64)),
    Column("progress", Text),
    Column("report", _File),
    Column("executable", _File),
    Column("log", _File),
    Column("device", String(64)),
    Column("latency_ms", Double),  # of the result, or as estimated so far
    Column("baseline", String(32)),  # the fastest other runtime, and what it takes
    Column("baseline_ms", Double),
    Column("ratio", Double),  # to that, and the ends of its interval; null of what was not timed in turns with it
    Column("ratio_low", Double),
    Column("ratio_high", Double),
    _time("created"),
    _time("started", needed=False),
    _time("ended", needed=False),
    _time("files_removed", needed=False),  # of the executable and the log
    Column("executable_size", BigInteger),  # in bytes; null of results of earlier versions
    Column("refused", Boolean),  # whether a job that failed would fail likewise again
    UniqueConstraint("owner", "idempotency_key"),
    Index("ix_service_jobs_owner_created", "owner", "created"),
    Index("ix_service_jobs_state", "state"),
    Index("ix_service_jobs_owner_model_state", "owner", "model", "state"),
)

job_runs = Table(  # all of a job: after an upgrade it has another one than before
    "service_job_runs",
    METADATA,
    Column("job", String(16), ForeignKey("service_jobs.id"), primary_key=True),
    Column("run_id", String(64), primary_key=True),
)

steps = Table(
    "service_steps",
    METADATA,
    Column("job", String(16), ForeignKey("service_jobs.id"), primary_key=True),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    _time("at"),
)

commands = Table(
    "service_wishes",
    METADATA,
    _id(),
    Column("job", String(16), ForeignKey("service_jobs.id"), nullable=False),
    Column("wish", String(16), nullable=False),
    Column("value", Double),
    _time("at"),
    _time("granted", needed=False),
    Index("ix_service_wishes_granted", "granted"),
)

webhooks = Table(
    "service_calls",
    METADATA,
    _id(),
    Column("job", String(16), ForeignKey("service_jobs.id"), nullable=False),
    Column("url", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    _time("due", needed=False),  # null: called, or given up
    Column("outcome", Text, nullable=False),
    Index("ix_service_calls_due", "due"),
)

machines = Table(
    "service_machines",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("token", _RowId, ForeignKey("service_tokens.id"), nullable=False, unique=True),
    Column("identity", String(128), nullable=False),
    Column("offer", Text, nullable=False),
    _time("joined"),
)

device_types = Table(
    "service_device_types",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("machine", String(64), nullable=False),
    Column("about", Text, nullable=False),
    _time("created"),
)

audit = Table(
    "service_audit",
    METADATA,
    _id(),
    _time("at"),
    Column("user", _RowId),
    Column("token", _RowId),
    Column("address", String(64), nullable=False),
    Column("action", String(32), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("details", Text, nullable=False),
    Index("ix_service_audit_at", "at"),
)
