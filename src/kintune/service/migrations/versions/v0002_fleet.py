"""Machines elsewhere, and the types of their devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_RowId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "service_machines",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("token", _RowId, nullable=False),
        sa.Column("identity", sa.String(128), nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("joined", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_machines"),
        sa.ForeignKeyConstraint(["token"], ["service_tokens.id"], name="fk_service_machines_token"),
        sa.UniqueConstraint("token", name="uq_service_machines_token"),
    )
    op.create_table(
        "service_device_types",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("machine", sa.String(64), nullable=False),
        sa.Column("about", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_device_types"),
    )


def downgrade() -> None:
    """Forget them."""
    op.drop_table("service_device_types")
    op.drop_table("service_machines")
