"""The state of the web application: what all requests work on, opened once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from types import TracebackType

from kintune.core.capabilities import kind_named
from kintune.core.measurement_protocol import DeviceType
from kintune.hardware.cpu import host_extensions, inspect_machine
from kintune.hardware.narrow_instructions import lacking
from kintune.service.audit_log import AuditLog
from kintune.service.blob_store import BlobStore
from kintune.service.database import open_database
from kintune.service.exports import Exports
from kintune.service.job_listing import JobListing
from kintune.service.job_repository import JobRepository
from kintune.service.machines import DeviceTypes
from kintune.service.model_store import ModelStore
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from kintune.tuning.front.placement import OWN_DEVICES

__all__ = ["ApplicationState"]


class ApplicationState:
    """What requests work on: the database's repositories, the blob store, exports and the settings; a context manager.

    `now` gives seconds since 1970.
    """

    def __init__(self, settings: ServiceSettings, now: Callable[[], float] = time.time) -> None:
        """Opens the database and the blob store.

        Raises:
            RecordsError: the database cannot be used.
            StorageError: the database or the blob store cannot be written.
        """
        self.settings = settings
        self.now = now
        self._stack = ExitStack()
        database = self._stack.enter_context(closing(open_database(settings.service_database)))
        self.users = Users(database)
        self.models = ModelStore(database)
        self.jobs = JobRepository(database)
        self.listing = JobListing(database)
        self.audit_log = AuditLog(database)
        self.blobs = BlobStore(settings.content)
        self.exports = Exports(settings.exports)
        self.device_types = DeviceTypes(database)
        self.database = database

    @property
    def devices(self) -> tuple[str, ...]:
        """The types of devices that a job can ask for."""
        return (self.settings.device_name, *self.device_types.all())

    def lacks(self, device: str) -> dict[str, str]:
        """The precisions that devices of a type do not compute in themselves, each with the reason, as far as known."""
        found = self.device_type(device)
        return {} if found is None else lacking(found)

    def device_type(self, device: str) -> DeviceType | None:
        """What devices of a type are as far as capabilities go; None if it is not known here."""
        if (known := self.device_types.get(device)) is not None:
            return known.device_type
        extensions, is_here = host_extensions(), self.settings.device.startswith(tuple(OWN_DEVICES))
        if extensions is None or self.settings.target != "native" or not is_here:
            return None
        target = json.dumps({"kind": kind_named(self.settings.device)})
        return DeviceType(target, inspect_machine().cpu, extensions, 1, "")

    def __enter__(self) -> ApplicationState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
