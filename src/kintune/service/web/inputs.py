"""`/api/v1/inputs`: sets of inputs that were uploaded, to quantise a model with or to compare its outputs on.

Only the headers of the arrays are read here.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from kintune.errors import InputError
from kintune.service.access import Visitor
from kintune.service.blob_store import Digest
from kintune.service.input_sets import misfit
from kintune.service.model_store import INPUTS, Findings, Input, StoredModel
from kintune.service.npz_headers import read_headers
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import ApplicationOf, Reader, Submitter, address_of
from kintune.service.web.middleware import declared_length
from kintune.service.web.schemas import ErrorOut, InputsOut, InputsPage
from kintune.service.web.uploads import (
    DigestInPath,
    delete_upload,
    end_of_life,
    receive_upload,
    record_upload,
    stored_upload,
)

__all__ = ["receive_inputs", "reuse_inputs", "router"]

router = APIRouter(
    prefix="/api/v1/inputs",
    tags=["inputs"],
    responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 413, 422, 503)},
)

InputsId = Annotated[int, Path(ge=1, lt=1 << 62)]
ForModel = Annotated[
    int | None,
    Query(ge=1, lt=1 << 62, description="The id of a model: what it does not take is refused, and not kept."),
]
InputsName = Annotated[str, Query(max_length=256, description="A name for the set of inputs.")]

_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.post("", status_code=201, openapi_extra={"requestBody": {"required": True, "content": _FILE}})
async def upload(
    request: Request,
    visitor: Submitter,
    application: ApplicationOf,
    name: InputsName = "inputs",
    model: ForModel = None,
) -> InputsOut:
    """Hand in an .npz file with a set of inputs as the body of the request; jobs name it in `calibrate` or `inputs`."""
    return InputsOut.of(
        await receive_inputs(
            application, visitor, name, request.stream(), address_of(request), model, declared_length(request.headers)
        )
    )


@router.put("/sha256/{digest}")
async def upload_again(
    digest: DigestInPath,
    request: Request,
    visitor: Submitter,
    application: ApplicationOf,
    name: InputsName = "inputs",
    model: ForModel = None,
) -> InputsOut:
    """Hand in a file that you have uploaded before, without sending it; 404 where it is to be sent by POST.

    The answer is that of an upload: the set has the new name, and is kept as long as a new one.
    """
    return InputsOut.of(await reuse_inputs(application, visitor, name, digest, address_of(request), model))


@router.get("")
def list_inputs(
    visitor: Reader,
    application: ApplicationOf,
    after: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> InputsPage:
    """Your sets of inputs, newest first."""
    found = application.models.page(visitor, after, limit, INPUTS)
    return InputsPage(inputs=[InputsOut.of(one) for one in found], next=found[-1].id if len(found) == limit else None)


@router.delete("/{inputs}", status_code=204)
def delete(inputs: InputsId, request: Request, visitor: Submitter, application: ApplicationOf) -> Response:
    """Forget a set of inputs."""
    delete_upload(application, visitor, inputs, INPUTS, address_of(request))
    return Response(status_code=204)


async def receive_inputs(
    application: ApplicationState,
    visitor: Visitor,
    name: str,
    chunks: AsyncIterator[bytes],
    address: str,
    model: int | None = None,
    declared: int | None = None,
) -> StoredModel:
    """Keeps an uploaded set of inputs.

    Raises:
        Forbidden: the visitor may upload nothing, or no more than there is.
        TooLarge: the upload is larger than the visitor's quota allows.
        InputError: it is no .npz file of plain arrays, holds more than the quota allows once it is unpacked, or has
            arrays that the `model` does not take.
        NotFound: there is no such model.
        StorageError: it cannot be written.
    """
    arrays: tuple[Input, ...] = ()

    async def examine(path: pathlib.Path) -> None:
        nonlocal arrays
        arrays = await _arrays(application, visitor, name, path, model)

    file, size = await receive_upload(application, visitor, "inputs", chunks, declared, examine)
    findings, expires = Findings(inputs=arrays), end_of_life(application)
    return record_upload(application, visitor, INPUTS, name, findings, address, file=file, size=size, expires=expires)


async def reuse_inputs(
    application: ApplicationState, visitor: Visitor, name: str, digest: Digest, address: str, model: int | None = None
) -> StoredModel:
    """Does as if a set of inputs that the visitor has uploaded before were uploaded again.

    Raises:
        NotFound: the visitor has no set of inputs with this digest, or has deleted it.
        Forbidden: the visitor may upload nothing.
        TooLarge: it is larger than the visitor's quota allows.
        InputError: it holds more than the quota allows once it is unpacked, or has arrays that the `model` does not
            take.
    """
    stored = stored_upload(application, visitor, "inputs", digest, INPUTS)
    findings = Findings(inputs=await _arrays(application, visitor, name, application.blobs.path(digest), model))
    expires = end_of_life(application)
    return record_upload(
        application,
        visitor,
        INPUTS,
        name,
        findings,
        address,
        file=digest,
        size=stored.size,
        expires=expires,
        sent=False,
    )


async def _arrays(
    application: ApplicationState, visitor: Visitor, name: str, path: pathlib.Path, model: int | None
) -> tuple[Input, ...]:
    """Returns what a set of inputs holds.

    Raises:
        NotFound: there is no such model.
        InputError: it is no .npz file of plain arrays, holds more than the quota allows once it is unpacked, or has
            arrays that the `model` does not take.
    """
    findings = None if model is None else (await asyncio.to_thread(application.models.get, visitor, model)).findings
    try:
        arrays = await asyncio.to_thread(read_headers, path, visitor.quota.upload_mb << 20)
        if findings is not None and (why := misfit(arrays, findings.inputs)) is not None:
            raise InputError(why)
    except InputError as error:
        raise InputError(f"{name[:64]}: {error}") from error
    return arrays
