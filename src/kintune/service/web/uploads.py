"""An upload on its way into the blob store: as large as its owner may still keep, and examined before it is kept.

A file that its owner has stored takes no more room when it comes again, and need not even be sent: its digest names it.
"""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

import msgspec
from fastapi import Path

from kintune.errors import KintuneError
from kintune.service.access import Forbidden, NotFound, Visitor
from kintune.service.blob_store import Digest, TooLarge
from kintune.service.model_store import MODEL, Findings, StoredModel
from kintune.service.web.application_state import ApplicationState

__all__ = ["DigestInPath", "delete_upload", "end_of_life", "receive_upload", "record_upload", "stored_upload"]

_DAY_S = 86400.0

DigestInPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="The SHA-256 of the file, in hexadecimal.")]
"""The parameter of a path that names a file by its content."""


async def receive_upload(
    application: ApplicationState,
    visitor: Visitor,
    called: str,
    chunks: AsyncIterator[bytes],
    declared: int | None = None,
    examine: Callable[[pathlib.Path], Awaitable[None]] | None = None,
) -> tuple[Digest, int]:
    """Keeps the bytes of an upload; returns their digest and their number.

    What `examine` refuses is not kept; `called` says what such uploads are.  One that is too large by the length that
    was `declared` is refused before any of it is read.

    Raises:
        Forbidden: the visitor may upload nothing, or no more than there is.
        TooLarge: the upload is larger than the visitor's quota allows.
        StorageError: it cannot be written.
    """
    most = _largest_allowed(visitor, called)
    longest = min(most, application.models.storage(visitor.user).longest_upload)
    if declared is not None and declared > longest:
        raise _refusal(application, visitor, longest, most)

    async def admit(path: pathlib.Path, digest: Digest, size: int) -> None:
        stored = application.models.of_file(visitor.user, digest)
        storage = application.models.storage(visitor.user)
        if (stored is None or stored.deleted is not None) and size > storage.left:
            raise storage.refusal()
        if examine is not None:
            await examine(path)

    try:
        return await application.blobs.receive(chunks, longest, admit)
    except TooLarge as error:
        raise _refusal(application, visitor, longest, most) from error


def _refusal(application: ApplicationState, visitor: Visitor, longest: int, most: int) -> KintuneError:
    """Why an upload of more than `longest` bytes is refused: the storage is full, or it has more than `most`."""
    if longest < most:
        return application.models.storage(visitor.user).refusal()
    return TooLarge(f"the file is larger than the {most >> 20} MB that are allowed")


def stored_upload(
    application: ApplicationState, visitor: Visitor, called: str, digest: Digest, kind: str = MODEL
) -> StoredModel:
    """Returns the visitor's own upload of a file, which need not be sent again; `called` says what such uploads are.

    Raises:
        NotFound: the visitor has none of this kind, or its file is gone.
        Forbidden: the visitor may upload nothing.
        TooLarge: the file is larger than the visitor's quota allows.
    """
    most = _largest_allowed(visitor, called)
    found = application.models.of_file(visitor.user, digest)
    if found is None or found.deleted is not None or found.kind != kind or not application.blobs.has(digest):
        raise NotFound(f"none of your {called} has this content; upload the file")
    if found.size > most:
        raise _refusal(application, visitor, most, most)
    return found


def _largest_allowed(visitor: Visitor, called: str) -> int:
    """Returns how many bytes one upload of a visitor may have.

    Raises:
        Forbidden: none.
    """
    if (most := visitor.quota.upload_mb << 20) <= 0:
        raise Forbidden(f"you may not upload {called}")
    return most


def record_upload(
    application: ApplicationState,
    visitor: Visitor,
    kind: str,
    name: str,
    findings: Findings,
    address: str,
    *,
    file: Digest,
    size: int,
    expires: float | None,
    sent: bool = True,
) -> StoredModel:
    """Records an upload with its findings; where its file was not `sent`, the one that is there is renewed."""
    now, details = application.now(), {"sha256": file, "size": size, **({} if sent else {"sent": False})}
    with application.database.transaction():
        if sent:
            stored = application.models.add(visitor.user, name, file, size, now, expires, kind)
        else:
            stored = application.models.renew(visitor.user, name, file, expires, kind)
        application.models.found(stored.id, findings)
        application.audit_log.note(now, "upload", f"{kind} {stored.id}", visitor, address, details)
    return msgspec.structs.replace(stored, findings=findings)


def delete_upload(application: ApplicationState, visitor: Visitor, id: int, kind: str, address: str) -> None:
    """Forgets an upload.

    Raises:
        NotFound: the visitor has none of this kind.
        OrderError: a job needs it.
    """
    now = application.now()
    with application.database.transaction():
        application.models.delete(visitor, id, now, kind)
        application.audit_log.note(now, "delete", f"{kind} {id}", visitor, address)


def end_of_life(application: ApplicationState) -> float | None:
    """Returns until when an upload is kept that comes now; None is for ever."""
    days = application.settings.keep_days
    return application.now() + days * _DAY_S if days else None
