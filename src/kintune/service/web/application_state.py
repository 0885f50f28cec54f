"""Everything that requests need, opened once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from types import TracebackType

from kintune.service.audit_log import Diary
from kintune.service.blob_store import Content
from kintune.service.database import open_database
from kintune.service.device_types import DeviceTypes
from kintune.service.job_repository import Docket
from kintune.service.model_store import Library
from kintune.service.settings import Settings
from kintune.service.users import People

__all__ = ["Rooms"]


class Rooms:
    """The service's rooms; a context manager, which closes them.  `now` gives seconds since 1970."""

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        """Raises RecordsError or StorageError when the database or the store cannot be used."""
        self.settings = settings
        self.now = now
        self._stack = ExitStack()
        database = self._stack.enter_context(closing(open_database(settings.service_database)))
        self.people = People(database)
        self.library = Library(database)
        self.docket = Docket(database)
        self.diary = Diary(database)
        self.content = Content(settings.content)
        self.device_types = DeviceTypes(database)
        self.database = database

    @property
    def devices(self) -> tuple[str, ...]:
        """What types of devices can be asked for."""
        return (self.settings.device_name, *self.device_types.all())

    def __enter__(self) -> Rooms:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
