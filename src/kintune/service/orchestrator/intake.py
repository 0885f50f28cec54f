"""From a job in the database to a tuning run on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from kintune.engine.command import Command
from kintune.errors import InputError
from kintune.front.place import Place
from kintune.front.request import TuneRequest
from kintune.front.ticket import Ticket
from kintune.job.payloads import ModelRef, Options
from kintune.records import Store
from kintune.service.content import Content
from kintune.service.docket import Job
from kintune.service.library import Library
from kintune.service.settings import Settings

__all__ = ["Intake"]

_JOB_MEMORY_MB = 24 * 1024


class Intake:
    """Knows where models lie, where jobs may write, and what the service allows them."""

    def __init__(self, settings: Settings, library: Library, content: Content, store: Store, place: Place) -> None:
        self._settings = settings
        self._library = library
        self._content = content
        self._store = store
        self._place = place

    @property
    def cores(self) -> int:
        """How many cores a job's own stages and its builds take."""
        return max(1, len(self._place.host) // min(self._settings.jobs_at_once, len(self._place.host)))

    @property
    def command(self) -> Command:
        """How a job's process is started: an import that goes astray must not take the machine with it."""
        return self._place.on_host("kintune.job.process", memory_mb=_JOB_MEMORY_MB)

    def ticket(self, job: Job) -> Ticket:
        """The run of a job, to begin or to go on with.

        Raises:
            InputError: it cannot be tuned here.
        """
        wanted, settings = job.wanted, self._settings
        if wanted.device != settings.device_name:
            raise InputError(
                f"no device of type {wanted.device!r} belongs to this service; there is {settings.device_name!r}"
            )
        model = self._library.of_job(job.model)
        work = self._work(job)
        work.mkdir(parents=True, exist_ok=True)
        options = Options(
            trials=wanted.trials,
            minutes=wanted.minutes,
            until_ms=wanted.target_ms,
            seed=wanted.seed,
            compare=("onnxruntime",),
        )
        request = TuneRequest(
            model=ModelRef("onnx", str(self._content.path(model.file)), model.name, wanted.shapes),
            target=settings.target,
            device=settings.device,
            options=options,
            records=settings.records,
            output=str(work / f"{model.name}.kt"),
            log=str(work / "run.log"),
            priority=job.priority,
        )
        return Ticket(request, self._store, self._place, owner=job.retry_of or job.id)

    def clean_up(self, job: Job) -> None:
        """The job is over, and what it leaves is in the store."""
        shutil.rmtree(self._work(job), ignore_errors=True)

    def _work(self, job: Job) -> Path:
        return self._settings.work / job.id
