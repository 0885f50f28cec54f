"""The versions of trained cost models; their bytes are blobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import select

from kintune.core.knowledge import ModelVersion
from kintune.records.database import Clock, Database, insert_or_keep
from kintune.records.integrity import OnDamage, refuse, sealed, verified
from kintune.records.schema import model_versions

__all__ = ["ModelRecord", "Models"]


class ModelRecord(msgspec.Struct, frozen=True):
    """A trained model and the time of day when it was added."""

    version: ModelVersion
    created: str


class Models:
    """Versions of cost models, by device type and family."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def add(self, version: ModelVersion) -> None:
        """Store a version whose blob and device type were added before; an equal one that is stored already stays.

        Raises:
            RecordsError: the blob or the device type is not in the records.
        """
        with self._database.transaction() as connection:
            row = sealed(model_versions, created=self._clock(), **msgspec.structs.asdict(version))
            insert_or_keep(connection, model_versions, row)

    def find(
        self, device_type: str, family: str | None = None, on_damage: OnDamage = refuse
    ) -> tuple[ModelRecord, ...]:
        """The versions for a device type (digest), of one family or all, the latest first."""
        query = select(model_versions).where(model_versions.c.device_type == device_type)
        if family is not None:
            query = query.where(model_versions.c.family == family)
        with self._database.snapshot() as connection:
            rows = connection.execute(query.order_by(model_versions.c.id.desc()))
            return tuple(_record(row) for row in verified(model_versions, rows, on_damage))


def _record(row: Mapping[str, Any]) -> ModelRecord:
    version = ModelVersion(row["blob"], row["family"], row["device_type"], row["features"], row["rows"])
    return ModelRecord(version, row["created"])
