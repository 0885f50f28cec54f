"""`/api/v1/models`: uploads, and what inspecting an uploaded file has found.

An upload is streamed to the blob store and inspected in a process of its own.  One that is stored need not be sent
again: its digest names it.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from kintune.errors import KintuneError
from kintune.service.access import Visitor
from kintune.service.blob_store import Digest
from kintune.service.model_store import MODEL, Findings, StoredModel
from kintune.service.upload_inspection import memory_limit_mb
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import ApplicationOf, Reader, Submitter, address_of
from kintune.service.web.middleware import declared_length
from kintune.service.web.schemas import ErrorOut, ModelOut, ModelPage
from kintune.service.web.uploads import (
    DigestInPath,
    delete_upload,
    end_of_life,
    receive_upload,
    record_upload,
    stored_upload,
)
from kintune.wire.confinement import Confinement, start_of

__all__ = ["InspectionFailed", "inspect_upload", "receive", "reuse", "router"]
_LOOK_S = 120.0
_PROBLEM_S = 3600.0  # what cannot be used is kept for this long
_MOST_OUTPUT = 4 << 20  # bytes
_CHUNK = 1 << 16
_AT_ONCE = asyncio.Semaphore(2)


router = APIRouter(
    prefix="/api/v1/models",
    tags=["models"],
    responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 413, 422, 503)},
)

ModelId = Annotated[int, Path(ge=1, lt=1 << 62)]
ModelName = Annotated[str, Query(max_length=256, description="A name for the model.")]


_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.post("", status_code=201, openapi_extra={"requestBody": {"required": True, "content": _FILE}})
async def upload(
    request: Request,
    visitor: Submitter,
    application: ApplicationOf,
    name: ModelName = "model",
) -> ModelOut:
    """Hand in an ONNX file as the body of the request; answered with what looking at it has found."""
    return ModelOut.of(
        await receive(
            application, visitor, name, request.stream(), address_of(request), declared_length(request.headers)
        )
    )


@router.put("/sha256/{digest}")
async def upload_again(
    digest: DigestInPath,
    request: Request,
    visitor: Submitter,
    application: ApplicationOf,
    name: ModelName = "model",
) -> ModelOut:
    """Hand in a file that you have uploaded before, without sending it; 404 where it is to be sent by POST.

    The answer is that of an upload: the model has the new name, and is kept as long as a new one.
    """
    return ModelOut.of(await reuse(application, visitor, name, digest, address_of(request)))


@router.get("")
def list_models(
    visitor: Reader,
    application: ApplicationOf,
    after: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ModelPage:
    """Your models, newest first."""
    found = application.models.page(visitor, after, limit)
    return ModelPage(models=[ModelOut.of(model) for model in found], next=found[-1].id if len(found) == limit else None)


@router.get("/{model}")
def show(model: ModelId, visitor: Reader, application: ApplicationOf) -> ModelOut:
    """One model."""
    return ModelOut.of(application.models.get(visitor, model))


@router.delete("/{model}", status_code=204)
def delete(model: ModelId, request: Request, visitor: Submitter, application: ApplicationOf) -> Response:
    """Forget a model; refused while a job needs it."""
    delete_upload(application, visitor, model, MODEL, address_of(request))
    return Response(status_code=204)


async def receive(
    application: ApplicationState,
    visitor: Visitor,
    name: str,
    chunks: AsyncIterator[bytes],
    address: str,
    declared: int | None = None,
) -> StoredModel:
    """Keeps an uploaded model, and inspects it.

    Raises:
        Forbidden: the visitor may upload nothing, or no more than there is.
        TooLarge: the upload is larger than the visitor's quota allows.
        StorageError: it cannot be written.
    """
    file, size = await receive_upload(application, visitor, "models", chunks, declared)
    findings = await _findings(application, visitor, file)
    expires = _end_of_life(application, findings)
    return record_upload(application, visitor, MODEL, name, findings, address, file=file, size=size, expires=expires)


async def reuse(
    application: ApplicationState, visitor: Visitor, name: str, digest: Digest, address: str
) -> StoredModel:
    """Does as if a model that the visitor has uploaded before were uploaded again; inspects it if it had a problem.

    Raises:
        NotFound: the visitor has no model with this digest, or has deleted it.
        Forbidden: the visitor may upload nothing.
        TooLarge: it is larger than the visitor's quota allows.
    """
    stored = stored_upload(application, visitor, "models", digest)
    findings = stored.findings
    if findings is None or findings.problem:
        findings = await _findings(application, visitor, digest)
    expires = _end_of_life(application, findings)
    return record_upload(
        application, visitor, MODEL, name, findings, address, file=digest, size=stored.size, expires=expires, sent=False
    )


def _end_of_life(application: ApplicationState, findings: Findings) -> float | None:
    """Returns until when a model is kept that is uploaded now; None is for ever."""
    return application.now() + _PROBLEM_S if findings.problem else end_of_life(application)


async def _findings(application: ApplicationState, visitor: Visitor, file: Digest) -> Findings:
    """Inspects a file; where that fails, what was found of the same bytes before holds if it was good."""
    try:
        return await inspect_upload(application.blobs.path(file), isolates=application.settings.isolates)
    except InspectionFailed as error:
        earlier = application.models.of_file(visitor.user, file)
        if earlier is None or earlier.kind != MODEL or earlier.findings is None or earlier.findings.problem:
            return Findings(problem=str(error))
        return earlier.findings


class InspectionFailed(KintuneError):
    """An inspection took too long, needed too much memory, or crashed: on a busy host a good model's may."""


async def inspect_upload(path: pathlib.Path, *, isolates: bool = False) -> Findings:
    """Returns the findings of an inspection; with `isolates`, its process sees nothing but the file.

    Raises:
        InspectionFailed: it ended without any.
    """
    command = [sys.executable, "-m", "kintune.service.upload_inspection", str(path)]
    async with _AT_ONCE:
        start = start_of(Confinement(read=(str(path),)) if isolates else None, command, os.environ)
        try:
            process = await asyncio.create_subprocess_exec(
                *start.argv, env=start.environment,
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            failure = f"its inspection could not be started ({error.strerror}); upload it again"
            raise InspectionFailed(failure) from error
        try:
            output = await asyncio.wait_for(_read_output(process), _LOOK_S)
        except asyncio.TimeoutError as error:
            raise InspectionFailed(f"its inspection took more than {_LOOK_S:g} seconds") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            start.clean()
    if output is None:
        return Findings(problem="the findings of its inspection are too long: it has too many inputs, outputs or names")
    assert process.returncode is not None
    if start.end_code(process.returncode) == -signal.SIGXCPU:
        raise InspectionFailed("its inspection takes more time than is allowed")
    try:
        return msgspec.json.decode(output, type=Findings)
    except msgspec.MsgspecError as error:
        raise InspectionFailed(
            f"its inspection needs more than the {memory_limit_mb()} MB of memory that are allowed, or it is damaged"
        ) from error


async def _read_output(process: asyncio.subprocess.Process) -> bytes | None:
    """Returns what the process writes until it ends; None as soon as that is too much."""
    assert process.stdout is not None
    output = bytearray()
    while chunk := await process.stdout.read(_CHUNK):
        output += chunk
        if len(output) > _MOST_OUTPUT:
            return None
    await process.wait()
    return bytes(output)
