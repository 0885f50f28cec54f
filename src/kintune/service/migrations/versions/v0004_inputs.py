"""Uploads are models or sets of inputs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """All that was uploaded so far are models."""
    op.add_column("service_models", sa.Column("kind", sa.String(16), nullable=False, server_default="model"))


def downgrade() -> None:
    """Forget the sets of inputs."""
    op.execute("UPDATE service_models SET deleted = created WHERE kind <> 'model' AND deleted IS NULL")
    with op.batch_alter_table("service_models") as batch:
        batch.drop_column("kind")
