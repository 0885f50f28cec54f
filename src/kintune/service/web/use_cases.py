"""Does what users ask for by the API or the portal, notes it in the audit log, and pokes the orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from kintune.errors import InputError
from kintune.hardware.narrow_instructions import check_narrow
from kintune.service.access import Visitor
from kintune.service.input_sets import misfit_in_job, unpacked_bytes
from kintune.service.job_repository import Job
from kintune.service.job_request import JobRequest, check, check_webhook
from kintune.service.job_status import JobCommand
from kintune.service.model_store import INPUTS, StoredModel
from kintune.service.web.application_state import ApplicationState
from kintune.service.webhooks import why_blocked

__all__ = ["UseCases"]
_LOOKUP_S, _MOST_LOOKUPS = 5.0, 8


class UseCases:
    """Everything that changes a job; `address` is where the visitor comes from."""

    def __init__(self, application: ApplicationState, poke: Callable[[], None]) -> None:
        self._application = application
        self._poke = poke
        self._lookups = ThreadPoolExecutor(_MOST_LOOKUPS, "webhook-check")  # not the threads that all others share

    async def check_webhook(self, url: str | None) -> None:
        """Checks that the webhook of a job may be called; a name that takes long to look up is checked when it is.

        Raises:
            InputError: it may not.
        """
        if url is None or self._application.settings.local_webhooks:
            return
        check_webhook(url)
        looking = asyncio.get_running_loop().run_in_executor(self._lookups, why_blocked, url)
        try:
            cause = await asyncio.wait_for(looking, _LOOKUP_S)
        except asyncio.TimeoutError:
            return
        if cause is not None:
            raise InputError(
                f"webhook {url[:200]!r} cannot be called: {cause}; name an address that this service may call"
            )

    def submit(
        self, visitor: Visitor, address: str, model: int, wanted: JobRequest, key: str | None = None
    ) -> tuple[Job, bool]:
        """Submits a job; returns it, and whether it is new: with the idempotency `key` of an earlier one, that one.

        Raises:
            InputError: the request makes no sense, the device cannot do it, or the model cannot be used.
            NotFound: the model, or a set of inputs, is not the visitor's.
            Forbidden: the visitor's quota is used up.
        """
        application, now = self._application, self._application.now()
        checked = check(wanted, application.settings.minutes)
        if checked.device not in application.devices:
            there = ", ".join(map(repr, application.devices))
            raise InputError(f"device {checked.device!r} does not belong to this service; it has {there}")
        if (able := application.device_type(checked.device)) is not None:
            check_narrow(able, checked.precision, checked.weights or 0)
        with application.database.transaction():
            found = application.models.get(visitor, model)
            if found.findings is not None and found.findings.problem:
                raise InputError(f"model {found.id} cannot be used: {found.findings.problem}")
            sets = dict.fromkeys((*checked.calibrate, *checked.inputs))
            total = sum(_checked_size(application.models.get(visitor, one, INPUTS), found, checked) for one in sets)
            if total > visitor.quota.upload_mb << 20:
                raise InputError(
                    f"the sets of inputs of this job take {total / 1e6:.0f} MB, and you may use "
                    f"{visitor.quota.upload_mb} MB for a job; name fewer of them"
                )
            job, is_new = application.jobs.submit(visitor, found.id, checked, now, key=key)
            if is_new:
                application.audit_log.note(now, "submit", f"job {job.id}", visitor, address, {"model": found.id})
        return self._poked(job, is_new)

    def retry(self, visitor: Visitor, address: str, job: str) -> tuple[Job, bool]:
        """Submits a job that resumes one that failed or was cancelled; returns it, and whether it is new.

        Raises:
            OrderError: the old one has not failed and was not cancelled.
            NotFound: the job is not the visitor's.
            Forbidden: its owner's quota is used up.
        """
        application, now = self._application, self._application.now()
        with application.database.transaction():
            old = application.jobs.get(visitor, job)
            application.models.get(visitor, old.model)
            new, is_new = application.jobs.retry(visitor, old, now)
            if is_new:
                application.audit_log.note(now, "retry", f"job {new.id}", visitor, address, {"of": old.id})
        return self._poked(new, is_new)

    def command(self, visitor: Visitor, address: str, job: str, command: JobCommand, value: float | None = None) -> Job:
        """Gives a job a command; returns the job.

        Raises:
            OrderError: the command makes no sense in the job's state.
            NotFound: the job is not the visitor's.
        """
        application, now = self._application, self._application.now()
        with application.database.transaction():
            found = application.jobs.get(visitor, job)
            application.jobs.command(found, command, now, value)
            application.audit_log.note(now, command.value, f"job {found.id}", visitor, address)
        self._poke()
        return application.jobs.get(visitor, job)

    def delete_files(self, visitor: Visitor, address: str, job: str) -> None:
        """Deletes the executable and the log of a job, if it has them; its report stays.

        Raises:
            OrderError: the job is not over.
            NotFound: the job is not the visitor's.
        """
        application, now = self._application, self._application.now()
        with application.database.transaction():
            found = application.jobs.get(visitor, job)
            if application.jobs.remove_files(found, now):
                application.audit_log.note(now, "delete files", f"job {found.id}", visitor, address)

    def _poked(self, job: Job, is_new: bool) -> tuple[Job, bool]:
        if is_new:
            self._poke()
        return job, is_new


def _checked_size(stored: StoredModel, model: StoredModel, wanted: JobRequest) -> int:
    """Returns the bytes of a set of inputs, unpacked.

    Raises:
        InputError: its arrays are not those that the model takes in this job.
    """
    arrays = () if stored.findings is None else stored.findings.inputs
    if model.findings is not None:
        why = misfit_in_job(arrays, model.findings.inputs, wanted.combinations(), wanted.constants)
        if why is not None:
            raise InputError(f"the set of inputs {stored.id} ({stored.name}): {why}")
    return max(stored.size, unpacked_bytes(arrays))
