"""A job's row says what it takes and what the fastest other runtime takes, so that lists can be sorted by the gain."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_JOBS = sa.table(
    "service_jobs",
    *(sa.column(name) for name in ("id", "wanted", "progress", "device", "latency_ms", "baseline", "baseline_ms")),
)
_ADDED: dict[str, Any] = {
    "device": sa.String(64),
    "latency_ms": sa.Double,
    "baseline": sa.String(32),
    "baseline_ms": sa.Double,
}


def upgrade() -> None:
    """Add the columns; earlier jobs have what their last progress said."""
    for name, kind in _ADDED.items():
        op.add_column("service_jobs", sa.Column(name, kind))
    connection = op.get_bind()
    for id, wanted, progress in list(connection.execute(sa.select(_JOBS.c.id, _JOBS.c.wanted, _JOBS.c.progress))):
        said = json.loads(progress) if progress else {}
        fastest = said.get("fastest_baseline") or {}
        values = {
            "device": json.loads(wanted).get("device", "local-cpu"),
            "latency_ms": said.get("best_ms"),
            "baseline": fastest.get("name"),
            "baseline_ms": fastest.get("ms"),
        }
        connection.execute(_JOBS.update().where(_JOBS.c.id == id).values(**values))


def downgrade() -> None:
    """Forget them."""
    for name in _ADDED:
        op.drop_column("service_jobs", name)
