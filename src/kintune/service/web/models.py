"""`/api/v1/models`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from kintune.service.web.authentication import Reader, RoomsOf, Submitter, address_of
from kintune.service.web.schemas import ErrorOut, ModelOut, ModelPage
from kintune.service.web.upload import receive

__all__ = ["router"]

router = APIRouter(
    prefix="/api/v1/models",
    tags=["models"],
    responses={code: {"model": ErrorOut} for code in (401, 403, 404, 409, 413, 422, 503)},
)

ModelId = Annotated[int, Path(ge=1, lt=1 << 62)]


_FILE = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


@router.post("", status_code=201, openapi_extra={"requestBody": {"required": True, "content": _FILE}})
async def upload(
    request: Request,
    visitor: Submitter,
    rooms: RoomsOf,
    name: Annotated[str, Query(max_length=256, description="What you call it.")] = "model",
) -> ModelOut:
    """Hand in an ONNX file as the body of the request; answered with what looking at it has found."""
    return ModelOut.of(await receive(rooms, visitor, name, request.stream(), address_of(request)))


@router.get("")
def list_models(
    visitor: Reader,
    rooms: RoomsOf,
    after: Annotated[int | None, Query(ge=1, lt=1 << 62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> ModelPage:
    """Your models, newest first."""
    found = rooms.library.page(visitor, after, limit)
    return ModelPage(models=[ModelOut.of(model) for model in found], next=found[-1].id if len(found) == limit else None)


@router.get("/{model}")
def show(model: ModelId, visitor: Reader, rooms: RoomsOf) -> ModelOut:
    """One model."""
    return ModelOut.of(rooms.library.get(visitor, model))


@router.delete("/{model}", status_code=204)
def delete(model: ModelId, request: Request, visitor: Submitter, rooms: RoomsOf) -> Response:
    """Forget a model; refused while a job needs it."""
    now = rooms.now()
    with rooms.database.transaction():
        rooms.library.delete(visitor, model, now)
        rooms.diary.note(now, "delete", f"model {model}", visitor, address_of(request))
    return Response(status_code=204)
