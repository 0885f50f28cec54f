"""Workloads and their sketches, which measurements refer to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from sqlalchemy import select

from kintune.core.candidate import Sketch
from kintune.core.workload import Subgraph
from kintune.errors import RecordsError
from kintune.records.blobs import Blobs
from kintune.records.database import Database, insert_or_keep
from kintune.records.integrity import OnDamage, refuse, sealed, verified
from kintune.records.schema import sketches, workloads

__all__ = ["WorkloadRecord", "Workloads"]


class WorkloadRecord(msgspec.Struct, frozen=True):
    """A program that can be tuned.  `blob` is the digest of its serialised module; `flops` are per run."""

    digest: str
    name: str
    operator: str
    signature: str
    flops: float
    blob: str


class Workloads:
    """Workloads and sketches by digest.  Their programs are blobs, since many runs share them."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self._database = database
        self._blobs = blobs

    def add(self, subgraph: Subgraph, module: bytes) -> None:
        """Store the workload of `subgraph` with its serialised program, unless one with its digest is stored."""
        with self._database.transaction() as connection:
            row = sealed(
                workloads,
                digest=subgraph.workload,
                name=subgraph.name,
                operator=subgraph.operator,
                signature=subgraph.signature,
                flops=subgraph.flops,
                blob=self._blobs.put(module),
            )
            insert_or_keep(connection, workloads, row)

    def add_sketch(self, sketch: Sketch) -> None:
        """Store a sketch, unless one with its digest is stored.

        Raises:
            RecordsError: its workload is not in the records.
        """
        with self._database.transaction() as connection:
            blob = self._blobs.put(msgspec.msgpack.encode(sketch))
            row = sealed(sketches, digest=sketch.digest, workload=sketch.workload, blob=blob)
            insert_or_keep(connection, sketches, row)

    def get(self, digest: str) -> WorkloadRecord:
        """Returns the workload with this digest.

        Raises:
            RecordsError: there is none.
            DamagedRecord: its row changed.
        """
        with self._database.snapshot() as connection:
            for row in verified(workloads, connection.execute(select(workloads).where(workloads.c.digest == digest))):
                return _workload(row)
        raise RecordsError(f"records: no workload {digest}")

    def list(self, on_damage: OnDamage = refuse) -> tuple[WorkloadRecord, ...]:
        """All workloads, by digest."""
        with self._database.snapshot() as connection:
            rows = connection.execute(select(workloads).order_by(workloads.c.digest))
            return tuple(_workload(row) for row in verified(workloads, rows, on_damage))

    def module(self, digest: str) -> bytes:
        """The serialised program of a workload.

        Raises:
            RecordsError: there is no such workload.
            DamagedRecord: its row or its program changed.
        """
        with self._database.snapshot():
            return self._blobs.get(self.get(digest).blob)

    def sketches(self, of: Iterable[str]) -> tuple[Sketch, ...]:
        """The sketches of the workloads `of`, by workload in the order given, then by digest.

        Raises:
            DamagedRecord: a sketch changed.
        """
        found: list[Sketch] = []
        with self._database.snapshot() as connection:
            for workload in of:
                query = select(sketches).where(sketches.c.workload == workload).order_by(sketches.c.digest)
                for row in verified(sketches, connection.execute(query)):
                    found.append(msgspec.msgpack.decode(self._blobs.get(row["blob"]), type=Sketch))
        return tuple(found)


def _workload(row: Mapping[str, Any]) -> WorkloadRecord:
    return WorkloadRecord(row["digest"], row["name"], row["operator"], row["signature"], row["flops"], row["blob"])
