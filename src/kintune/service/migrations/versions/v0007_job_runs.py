"""All runs of a job are known, since an upgrade gives a job that is under way another one."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_JOBS = sa.table("service_jobs", sa.column("id"), sa.column("run_id"))
_TABLE = "service_job_runs"


def upgrade() -> None:
    """Make the table; of earlier jobs the last run is known."""
    runs = op.create_table(
        _TABLE,
        sa.Column("job", sa.String(16), sa.ForeignKey("service_jobs.id"), primary_key=True),
        sa.Column("run_id", sa.String(64), primary_key=True),
    )
    known = sa.select(_JOBS.c.id, _JOBS.c.run_id).where(_JOBS.c.run_id.is_not(None))
    op.execute(runs.insert().from_select(["job", "run_id"], known))


def downgrade() -> None:
    """Drop it."""
    op.drop_table(_TABLE)
