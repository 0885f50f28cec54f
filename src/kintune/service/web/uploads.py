"""An upload on its way into the blob store: as large as its owner may still keep, and examined before it is kept."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable

from kintune.service.access import Forbidden, Visitor
from kintune.service.blob_store import Digest, TooLarge
from kintune.service.web.application_state import ApplicationState

__all__ = ["receive_upload"]


async def receive_upload(
    application: ApplicationState,
    visitor: Visitor,
    called: str,
    chunks: AsyncIterator[bytes],
    examine: Callable[[pathlib.Path], Awaitable[None]] | None = None,
) -> tuple[Digest, int]:
    """Keeps the bytes of an upload; returns their digest and their number.

    What `examine` refuses is not kept; `called` says what such uploads are.

    Raises:
        Forbidden: the visitor may upload nothing, or no more than there is.
        TooLarge: the upload is larger than the visitor's quota allows.
        StorageError: it cannot be written.
    """
    most, storage = visitor.quota.upload_mb << 20, application.models.storage(visitor.user)
    if most <= 0:
        raise Forbidden(f"you may not upload {called}")
    try:
        return await application.blobs.receive(chunks, min(most, storage.left), examine)
    except TooLarge as error:
        if storage.left < most:
            raise storage.refusal from error
        raise
