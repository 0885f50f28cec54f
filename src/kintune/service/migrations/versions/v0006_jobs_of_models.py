"""An index finds the jobs of a user's models: the page of the models shows the outcome of each."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_INDEX = "ix_service_jobs_owner_model_state"


def upgrade() -> None:
    """Make the index."""
    op.create_index(_INDEX, "service_jobs", ["owner", "model", "state"])


def downgrade() -> None:
    """Drop it."""
    op.drop_index(_INDEX, "service_jobs")
