"""What goes over the API: one model a thing, with names and units that people can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, create_model

from kintune.core.constraints import OptionField as Option
from kintune.core.constraints import fields_of
from kintune.service.faces import said
from kintune.service.job_repository import Job, JobStep
from kintune.service.job_request import MOST_PRIORITY, JobRequest
from kintune.service.model_store import StoredModel
from kintune.service.webhook_outcome import WebhookOutcome

__all__ = [
    "ErrorOut",
    "InputsOut",
    "InputsPage",
    "JobIn",
    "JobOut",
    "JobPage",
    "JobRequestIn",
    "ModelOut",
    "ModelPage",
    "PriorityIn",
    "StepOut",
    "WebhookOut",
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


_UploadId = Annotated[int, Field(ge=1, lt=1 << 62)]

_WRITTEN: Mapping[str, Any] = {
    "until": Annotated[str, Field(max_length=64)] | float | None,
    "shapes": dict[str, list[int] | list[list[int]]],
    "constants": dict[str, bool | int | float | list[Any]],
    "calibrate": list[_UploadId],
    "inputs": list[_UploadId],
}
"""The types of fields of `JobRequest` that are written otherwise than they are kept."""


def _field(field: Option) -> tuple[Any, Any]:
    """The type of a field of `JobRequest`, and its default, limits and help."""
    kind = _WRITTEN.get(field.name) or (Literal[field.choices] if field.choices else field.kind)
    limits = {limit: value for limit in ("gt", "ge", "le") if (value := getattr(field.meta, limit)) is not None}
    if field.kind is float:
        limits["allow_inf_nan"] = False
    elif field.kind is int and not field.choices and "le" not in limits:
        limits["lt"] = 1 << 63
    elif field.shown.most is not None:
        limits["max_length"] = field.shown.most
    default = [] if field.default == () else field.default
    return (kind | None if field.optional else kind), Field(default, description=field.help, **limits)


if TYPE_CHECKING:
    _Fields = _Strict
else:
    _Fields = create_model(
        "_Fields", __base__=_Strict, **{name: _field(field) for name, field in fields_of(JobRequest).items()}
    )


class JobRequestIn(_Fields):
    """What is wanted of a model."""

    def wanted(self) -> JobRequest:
        """Returns the request as the service uses it."""
        given = self.model_dump()
        given["shapes"] = {
            name: tuple(tuple(one) if isinstance(one, list) else one for one in shape)
            for name, shape in given["shapes"].items()
        }
        if given["until"] is not None:
            given["until"] = str(given["until"])
        return JobRequest(**{**given, "calibrate": tuple(given["calibrate"]), "inputs": tuple(given["inputs"])})


class JobIn(_Strict):
    """A model of the user, and the request for a job."""

    model: int = Field(ge=1, lt=1 << 62)
    wanted: JobRequestIn = Field(default_factory=lambda: JobRequestIn.model_validate({}))


class PriorityIn(_Strict):
    """Another priority."""

    priority: Annotated[float, Field(gt=0, le=MOST_PRIORITY, allow_inf_nan=False)]


class StepOut(BaseModel):
    """A state transition of a job."""

    state: str
    reason: str
    at: float = Field(description="Seconds since 1970, UTC.")

    @classmethod
    def of(cls, step: JobStep) -> StepOut:
        """Returns the answer's form of a step."""
        return cls.model_validate({**msgspec.to_builtins(step), "reason": said(step.reason)})


class WebhookOut(BaseModel):
    """What became of the calls of a job's webhook."""

    url: str
    attempts: int
    outcome: str = Field(description="How the last call ended; empty before it.")
    due: float | None = Field(description="When the next call is made; null: no more is to come.")


class JobOut(BaseModel):
    """A job."""

    id: str
    model: int
    model_name: str = Field("", description="The name of its model; empty in other answers than of one job or a list.")
    owner: str = Field("", description="The name of its user; empty in other answers than of one job or a list.")
    state: str
    reason: str = Field(description="Why the job is in this state; if it failed, what to do about it.")
    priority: float
    wanted: dict[str, Any]
    retry_of: str | None
    progress: dict[str, Any] | None = Field(description="The progress of the search; for display only.")
    latency_ms: float | None = Field(None, description="The latency of the result; an estimate while the job runs.")
    fastest_baseline: dict[str, Any] | None = Field(
        None, description="The fastest other runtime: `name`, `ms`, and the job's latency as a share of that (`ratio`)."
    )
    has_result: bool = Field(description="Whether its executable can be downloaded.")
    executable_size: int | None = Field(None, description="The bytes of its executable, which count in your storage.")
    files_removed: float | None = Field(description="When its executable and its log were removed; its report stays.")
    created: float
    started: float | None
    ended: float | None
    refused: bool | None = Field(None, description="Whether a job that failed would fail likewise again.")
    steps: list[StepOut] | None = None
    webhook_calls: list[WebhookOut] | None = Field(
        None, description="Calls of its webhook, after its end; only in the answer of one job."
    )

    @classmethod
    def of(
        cls,
        job: Job,
        steps: list[JobStep] | None = None,
        name: str = "",
        owner: str = "",
        calls: list[WebhookOutcome] | None = None,
    ) -> JobOut:
        """Returns the answer's form of a job."""
        told: dict[str, Any] = {
            "model_name": name,
            "owner": owner,
            "reason": said(job.reason),
            "progress": None if job.progress is None else msgspec.json.decode(job.progress),
            "fastest_baseline": msgspec.to_builtins(job.fastest_baseline),
            "has_result": job.executable is not None,
            "steps": None if steps is None else [StepOut.of(step) for step in steps],
            "webhook_calls": msgspec.to_builtins(calls),
        }
        return cls.model_validate({**msgspec.to_builtins(job), **told})


class JobPage(BaseModel):
    """Some jobs, newest first; `next` reads on where they end."""

    jobs: list[JobOut]
    next: str | None


class _UploadOut(BaseModel):
    id: int
    name: str
    sha256: str
    size: int = Field(description="Bytes.")
    created: float
    expires: float | None


class ModelOut(_UploadOut):
    """A model that was uploaded."""

    findings: dict[str, Any] | None = Field(description="The findings of the model's inspection; null before it.")

    @classmethod
    def of(cls, model: StoredModel) -> ModelOut:
        """Returns the answer's form of a model."""
        return cls.model_validate({**msgspec.to_builtins(model), "sha256": model.file})


class ModelPage(BaseModel):
    """Some models, newest first; `next` reads on where they end."""

    models: list[ModelOut]
    next: int | None


class InputsOut(_UploadOut):
    """A set of inputs that was uploaded."""

    arrays: list[dict[str, Any]] = Field(description="Name, shape and type of each array.")

    @classmethod
    def of(cls, stored: StoredModel) -> InputsOut:
        """Returns the answer's form of a set of inputs."""
        told = msgspec.to_builtins(stored)
        return cls.model_validate({**told, "sha256": stored.file, "arrays": (told["findings"] or {}).get("inputs", ())})


class InputsPage(BaseModel):
    """Some sets of inputs, newest first; `next` reads on where they end."""

    inputs: list[InputsOut]
    next: int | None


class ErrorOut(BaseModel):
    """What went wrong, in one line."""

    error: str
    kind: str
