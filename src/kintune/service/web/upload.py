"""A file comes in: streamed, named by its content, looked at in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from kintune.service.access import Forbidden, Visitor
from kintune.service.model_store import Findings, StoredModel
from kintune.service.web.application_state import ApplicationState

__all__ = ["look", "receive"]

_LOOK_S = 120.0
_AT_ONCE = asyncio.Semaphore(2)
_DAY_S = 86400.0
_MOST_SAID = 4 << 20  # bytes
_CHUNK = 1 << 16


async def receive(
    rooms: ApplicationState, visitor: Visitor, name: str, chunks: AsyncIterator[bytes], address: str
) -> StoredModel:
    """Keep what comes, and look at it.

    Raises TooLarge, StorageError, or Forbidden when the visitor may hand in nothing.
    """
    if visitor.quota.upload_mb <= 0:
        raise Forbidden("you may not upload models")
    file, size = await rooms.content.receive(chunks, visitor.quota.upload_mb << 20)
    findings = await look(rooms.content.path(file))
    now, days = rooms.now(), rooms.settings.keep_days
    with rooms.database.transaction():
        model = rooms.library.add(visitor.user, name, file, size, now, now + days * _DAY_S if days else None)
        rooms.library.found(model.id, findings)
        rooms.diary.note(now, "upload", f"model {model.id}", visitor, address, {"sha256": file, "size": size})
    return msgspec.structs.replace(model, findings=findings)


async def look(path: Path) -> Findings:
    """What looking at a file finds; a look that dies or takes too long is a finding, too."""
    async with _AT_ONCE:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kintune.service.upload_inspection", str(path),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            said = await asyncio.wait_for(_hear(process), _LOOK_S)
        except asyncio.TimeoutError:
            return Findings(problem=f"looking at it took more than {_LOOK_S:g} seconds")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if said is None:
        return Findings(problem="there is more to say about it than may be: it has too many inputs, outputs or names")
    try:
        return msgspec.json.decode(said, type=Findings)
    except msgspec.MsgspecError:
        return Findings(problem="looking at it needs more memory than is allowed, or it is damaged")


async def _hear(process: asyncio.subprocess.Process) -> bytes | None:
    """What it says until its end; None as soon as that is more than may be."""
    assert process.stdout is not None
    said = bytearray()
    while chunk := await process.stdout.read(_CHUNK):
        said += chunk
        if len(said) > _MOST_SAID:
            return None
    await process.wait()
    return bytes(said)
