"""The agent's side of file transfer: finds the files that processes need on its machine, or has them sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kintune.errors import InputError
from kintune.workers.fleet.content_cache import Arrival, ContentCache, ContentMismatch, FileContent
from kintune.workers.fleet.file_transfer import StagingDirectory
from kintune.workers.fleet.messages import FileGone, FilePart, Need, Want

__all__ = ["FileFetcher"]

_CUT = "the connection to the service was cut"
_TRIES = 3


class _Coming(NamedTuple):
    """A file that was asked for; `again` after a first try that brought something else."""

    arrival: Arrival
    arrived: asyncio.Future[Path]
    name: str
    content: FileContent
    again: bool = False


class FileFetcher:
    """Places files in staging directories.  Belongs to one running event loop.

    A file with the same content under the same path is used where it is: then the directory is shared.  Otherwise a
    copy comes from the cache of this machine, into which it is fetched once, however many processes need it.
    """

    def __init__(self, cache: ContentCache, ask: Callable[[Want], None]) -> None:
        """`ask` asks the front for a file."""
        self._cache = cache
        self.directory = cache.directory
        self._ask = ask
        self._coming: dict[str, _Coming] = {}
        self._closed = False

    async def place(self, need: Need, staging: StagingDirectory) -> None:
        """See that a process finds the file in its staging directory.

        Raises:
            InputError: it cannot be had; the message says why.
        """
        content = FileContent(need.size, need.digest)
        if await asyncio.to_thread(self._is_here, need.path, content):
            staging.refer(need.path)
            return
        name = Path(need.path).name
        for _ in range(_TRIES):
            kept = await asyncio.to_thread(self._cache.find, content) or await self._fetch(name, content)
            if await asyncio.to_thread(staging.add, need.path, kept):
                return
        raise InputError(f"{name} had to make room for others before it could be used in {self._cache.directory}")

    def part(self, part: FilePart) -> None:
        """A part of a file that was asked for."""
        coming = self._coming.get(part.digest)
        if coming is None:
            return
        try:
            if coming.arrival.take(part.offset, part.data):
                path = coming.arrival.finish()
                del self._coming[part.digest]
                coming.arrived.set_result(path)
        except ContentMismatch:
            self._refuse(part.digest, coming)
        except InputError as error:
            self._fail(part.digest, str(error))

    def gone(self, gone: FileGone) -> None:
        """A file that was asked for cannot be sent."""
        self._fail(gone.digest, gone.cause)

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        for digest in list(self._coming):
            self._fail(digest, _CUT)

    def _is_here(self, path: str, content: FileContent) -> bool:
        """Whether the path leads to this content on this machine, too."""
        try:
            return Path(path).stat().st_size == content.size and self._cache.digests.of(path) == content
        except (OSError, ValueError):
            return False

    async def _fetch(self, name: str, content: FileContent) -> Path:
        if self._closed:  # it was looked for on this machine meanwhile
            raise InputError(_CUT)
        coming = self._coming.get(content.digest)
        if coming is None:
            arrived = asyncio.get_running_loop().create_future()
            coming = _Coming(self._cache.begin(name, content), arrived, name, content)
            self._coming[content.digest] = coming
            self._ask(Want(content.digest))
        return await asyncio.shield(coming.arrived)

    def _refuse(self, digest: str, coming: _Coming) -> None:
        """Ask once more for a file that differs from what was announced; give it up after the second time."""
        coming.arrival.drop()
        if coming.again:
            self._fail(digest, f"{coming.name} arrived twice otherwise than it was announced; its SHA-256 differs")
            return
        try:
            arrival = self._cache.begin(coming.name, coming.content)
        except InputError as error:
            self._fail(digest, str(error))
            return
        self._coming[digest] = coming._replace(arrival=arrival, again=True)
        self._ask(Want(digest, again=True))

    def _fail(self, digest: str, cause: str) -> None:
        coming = self._coming.pop(digest, None)
        if coming is None:
            return
        coming.arrival.drop()
        coming.arrived.set_exception(InputError(cause))
        coming.arrived.exception()  # whoever needed it may be gone
