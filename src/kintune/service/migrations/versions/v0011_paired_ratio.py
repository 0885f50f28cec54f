"""A job's row has the ratio to the fastest other runtime as it was timed in turns, with the ends of its interval."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_ADDED = ("ratio", "ratio_low", "ratio_high")


def upgrade() -> None:
    """Add the columns; earlier results have the ratio of their medians."""
    for name in _ADDED:
        op.add_column("service_jobs", sa.Column(name, sa.Double))


def downgrade() -> None:
    """Forget them."""
    for name in _ADDED:
        op.drop_column("service_jobs", name)
