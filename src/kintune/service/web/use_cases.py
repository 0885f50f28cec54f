"""What people ask for, by whichever door they come: done, written into the audit log, and the orchestrator is poked."""

from __future__ import annotations

from collections.abc import Callable

from kintune.errors import InputError
from kintune.service.access import Visitor
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest, check
from kintune.service.job_status import JobCommand
from kintune.service.web.application_state import ApplicationState

__all__ = ["UseCases"]


class UseCases:
    """Everything that changes a job; `address` is where the visitor comes from.

    All methods raise Forbidden when the visitor's quota is used up, NotFound for what is not theirs.
    """

    def __init__(self, rooms: ApplicationState, poke: Callable[[], None]) -> None:
        self._rooms = rooms
        self._poke = poke

    def submit(
        self, visitor: Visitor, address: str, model: int, wanted: JobRequest, key: str | None = None
    ) -> tuple[Job, bool]:
        """A new job, and that it is new; with the idempotency `key` of an earlier one, that one.

        Raises:
            InputError: for a specification that makes no sense, or a model that cannot be used.
        """
        rooms, now = self._rooms, self._rooms.now()
        checked = check(wanted, rooms.settings.minutes)
        if checked.device not in rooms.devices:
            there = ", ".join(map(repr, rooms.devices))
            raise InputError(f"device {checked.device!r} does not belong to this service; it has {there}")
        with rooms.database.transaction():
            found = rooms.library.get(visitor, model)
            if found.findings is not None and found.findings.problem:
                raise InputError(f"model {found.id} cannot be used: {found.findings.problem}")
            job, is_new = rooms.docket.submit(visitor, found.id, checked, now, key=key)
            if is_new:
                rooms.diary.note(now, "submit", f"job {job.id}", visitor, address, {"model": found.id})
        return self._poked(job, is_new)

    def retry(self, visitor: Visitor, address: str, job: str) -> tuple[Job, bool]:
        """A new job that goes on where an old one ended badly, and that it is new; the one that does already.

        Raises:
            OrderError: the old one has not ended badly.
        """
        rooms, now = self._rooms, self._rooms.now()
        with rooms.database.transaction():
            old = rooms.docket.get(visitor, job)
            rooms.library.get(visitor, old.model)
            new, is_new = rooms.docket.retry(visitor, old, now)
            if is_new:
                rooms.diary.note(now, "retry", f"job {new.id}", visitor, address, {"of": old.id})
        return self._poked(new, is_new)

    def wish(self, visitor: Visitor, address: str, job: str, wish: JobCommand, value: float | None = None) -> Job:
        """Ask something of a job.

        Raises:
            OrderError: that makes no sense in its state.
        """
        rooms, now = self._rooms, self._rooms.now()
        with rooms.database.transaction():
            found = rooms.docket.get(visitor, job)
            rooms.docket.wish(found, wish, now, value)
            rooms.diary.note(now, wish.value, f"job {found.id}", visitor, address)
        self._poke()
        return rooms.docket.get(visitor, job)

    def _poked(self, job: Job, is_new: bool) -> tuple[Job, bool]:
        if is_new:
            self._poke()
        return job, is_new
