"""A job's row says whether it failed in a way that trying again does not change."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; of earlier jobs it is not known."""
    op.add_column("service_jobs", sa.Column("refused", sa.Boolean))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("service_jobs", "refused")
