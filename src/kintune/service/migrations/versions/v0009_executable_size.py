"""A job's row says how large its executable is, which counts in its owner's limit of storage."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; earlier results count for nothing."""
    op.add_column("service_jobs", sa.Column("executable_size", sa.BigInteger))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("service_jobs", "executable_size")
