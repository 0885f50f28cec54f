"""The first tables.

Spelled out, not taken from `schema`: a migration stays what it was when the tables change later.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_RowId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "service_users",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("quota", sa.Text, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_service_users"),
        sa.UniqueConstraint("name", name="uq_service_users_name"),
    )
    op.create_table(
        "service_tokens",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("user", _RowId, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("hint", sa.String(16), nullable=False),
        sa.Column("label", sa.String(64), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
        sa.Column("used", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_service_tokens"),
        sa.ForeignKeyConstraint(["user"], ["service_users.id"], name="fk_service_tokens_user"),
        sa.UniqueConstraint("hash", name="uq_service_tokens_hash"),
    )
    op.create_index("ix_service_tokens_user", "service_tokens", ["user"])
    op.create_table(
        "service_models",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("owner", _RowId, nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("file", sa.String(64), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("findings", sa.Text),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("deleted", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_service_models"),
        sa.ForeignKeyConstraint(["owner"], ["service_users.id"], name="fk_service_models_owner"),
        sa.UniqueConstraint("owner", "file", name="uq_service_models_owner"),
    )
    op.create_index("ix_service_models_file", "service_models", ["file"])
    op.create_table(
        "service_jobs",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("owner", _RowId, nullable=False),
        sa.Column("model", _RowId, nullable=False),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("priority", sa.Double, nullable=False),
        sa.Column("share", sa.Boolean, nullable=False),
        sa.Column("minutes", sa.Double, nullable=False),
        sa.Column("idempotency_key", sa.String(128)),
        sa.Column("retry_of", sa.String(16)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("run_id", sa.String(64)),
        sa.Column("progress", sa.Text),
        sa.Column("report", sa.String(64)),
        sa.Column("executable", sa.String(64)),
        sa.Column("log", sa.String(64)),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("started", sa.Double),
        sa.Column("ended", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_service_jobs"),
        sa.ForeignKeyConstraint(["owner"], ["service_users.id"], name="fk_service_jobs_owner"),
        sa.ForeignKeyConstraint(["model"], ["service_models.id"], name="fk_service_jobs_model"),
        sa.ForeignKeyConstraint(["retry_of"], ["service_jobs.id"], name="fk_service_jobs_retry_of"),
        sa.UniqueConstraint("owner", "idempotency_key", name="uq_service_jobs_owner"),
    )
    op.create_index("ix_service_jobs_owner_created", "service_jobs", ["owner", "created"])
    op.create_index("ix_service_jobs_state", "service_jobs", ["state"])
    op.create_table(
        "service_steps",
        sa.Column("job", sa.String(16), nullable=False),
        sa.Column("seq", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("job", "seq", name="pk_service_steps"),
        sa.ForeignKeyConstraint(["job"], ["service_jobs.id"], name="fk_service_steps_job"),
    )
    op.create_table(
        "service_wishes",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("job", sa.String(16), nullable=False),
        sa.Column("wish", sa.String(16), nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("granted", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_service_wishes"),
        sa.ForeignKeyConstraint(["job"], ["service_jobs.id"], name="fk_service_wishes_job"),
    )
    op.create_index("ix_service_wishes_granted", "service_wishes", ["granted"])
    op.create_table(
        "service_calls",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("job", sa.String(16), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.Double),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_service_calls"),
        sa.ForeignKeyConstraint(["job"], ["service_jobs.id"], name="fk_service_calls_job"),
    )
    op.create_index("ix_service_calls_due", "service_calls", ["due"])
    op.create_table(
        "service_audit",
        sa.Column("id", _RowId, nullable=False),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("user", _RowId),
        sa.Column("token", _RowId),
        sa.Column("address", sa.String(64), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("details", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_service_audit"),
    )
    op.create_index("ix_service_audit_at", "service_audit", ["at"])


def downgrade() -> None:
    """Nothing goes back before the first tables."""
    raise NotImplementedError("these are the first tables")
