"""What ends a search is a text: `target_ms` of a job's request becomes `until`."""

from __future__ import annotations

import json

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_JOBS = sa.table("service_jobs", sa.column("id", sa.String), sa.column("wanted", sa.Text))


def upgrade() -> None:
    """Write the milliseconds as a text."""
    connection = op.get_bind()
    for id, wanted in list(connection.execute(sa.select(_JOBS.c.id, _JOBS.c.wanted))):
        request = json.loads(wanted)
        if "target_ms" not in request:
            continue
        target_ms = request.pop("target_ms")
        request["until"] = None if target_ms is None else f"{target_ms:.12g}"
        connection.execute(_JOBS.update().where(_JOBS.c.id == id).values(wanted=json.dumps(request)))


def downgrade() -> None:
    """Keep the milliseconds; a share of a baseline is forgotten."""
    connection = op.get_bind()
    for id, wanted in list(connection.execute(sa.select(_JOBS.c.id, _JOBS.c.wanted))):
        request = json.loads(wanted)
        until = request.pop("until", None)
        try:
            request["target_ms"] = None if until is None else float(until)
        except ValueError:
            request["target_ms"] = None
        connection.execute(_JOBS.update().where(_JOBS.c.id == id).values(wanted=json.dumps(request)))
