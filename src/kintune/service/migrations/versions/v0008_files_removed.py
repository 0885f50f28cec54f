"""A job's row says when its executable and its log were removed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; earlier jobs have all their files."""
    op.add_column("service_jobs", sa.Column("files_removed", sa.Double))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("service_jobs", "files_removed")
