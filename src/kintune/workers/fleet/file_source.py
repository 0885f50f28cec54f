"""The front's side of file transfer: announces the files that processes elsewhere need, and sends what is asked for."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from kintune.workers.fleet.content_cache import FileContent, FileDigests
from kintune.workers.fleet.file_transfer import PART_BYTES
from kintune.workers.fleet.messages import Clear, FileGone, FilePart, Need, Want
from kintune.workers.fleet.transport import FairSendQueue

__all__ = ["Carry", "FileSource"]

Carry = Callable[[str, FileContent], Awaitable[None]]
"""Brings the file at a path, with this content, to the agent by other means; the agent receives `FilePart` messages."""


class FileSource:
    """Serves one agent, in one event loop.  What is said to a process keeps its order with the files that it needs."""

    def __init__(self, queue: FairSendQueue, digests: FileDigests, carry: Carry | None = None) -> None:
        """Without `carry`, files go over the connection in parts."""
        self._queue = queue
        self._digests = digests
        self._carry = carry
        self._held: dict[int, deque[Callable[[], None]]] = {}  # by processes whose files are being read
        self._announced: dict[str, tuple[str, FileContent]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def bring(self, process: int, paths: Sequence[str]) -> None:
        """Announce these files, and no others, to a process.

        A file that cannot be read is left out; the process that looks for it fails.
        """
        self.do(process, lambda: self._bring(process, paths))

    def do(self, process: int, act: Callable[[], None]) -> None:
        """Call `act` at once or, while files for the process are being read, after they are announced."""
        held = self._held.get(process)
        if held is None:
            act()
        else:
            held.append(act)

    def drop(self, process: int) -> None:
        """Forget what is held back for a process."""
        self._held.pop(process, None)

    def want(self, want: Want) -> None:
        """The agent asks for a file; none that was not announced to it is sent."""
        announced = self._announced.get(want.digest)
        if announced is None:
            self._queue.say(FileGone(want.digest, "the file was not announced"), want.digest)
        elif want.again or self._carry is not None:
            self._start(self._send(want, *announced))
        else:
            self._queue.say_all(_parts(*announced), want.digest)

    def close(self) -> None:
        """The agent is gone."""
        self._held.clear()
        for task in self._tasks:
            task.cancel()

    def _bring(self, process: int, paths: Sequence[str]) -> None:
        contents: list[tuple[str, FileContent]] = []
        for path in paths:
            try:
                known = self._digests.known(path)
            except (OSError, ValueError):
                continue
            if known is None:
                held: deque[Callable[[], None]] = deque()
                self._held[process] = held
                self._start(self._read_first(process, paths, held))
                return
            contents.append((path, known))
        self._announce(process, contents)

    async def _read_first(self, process: int, paths: Sequence[str], held: deque[Callable[[], None]]) -> None:
        contents = await asyncio.to_thread(self._read, paths)
        if self._held.get(process) is not held:  # it was killed
            return
        del self._held[process]
        self._announce(process, contents)
        while held:
            act = held.popleft()
            self.do(process, act)

    def _read(self, paths: Sequence[str]) -> list[tuple[str, FileContent]]:
        contents = []
        for path in paths:
            try:
                contents.append((path, self._digests.of(path)))
            except (OSError, ValueError):
                continue
        return contents

    def _announce(self, process: int, contents: Sequence[tuple[str, FileContent]]) -> None:
        self._queue.say(Clear(process), process)
        for path, content in contents:
            self._announced[content.digest] = (path, content)
            self._queue.say(Need(process, path, content.size, content.digest), process)

    async def _send(self, want: Want, path: str, content: FileContent) -> None:
        try:
            if want.again:
                self._digests.forget(path)
                if await asyncio.to_thread(self._digests.of, path) != content:
                    self._queue.say(_changed(path, content), want.digest)
                    return
            if self._carry is None:
                self._queue.say_all(_parts(path, content), want.digest)
            else:
                await self._carry(path, content)
        except OSError as error:
            self._queue.say(_unreadable(path, content, error), want.digest)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _parts(path: str, content: FileContent) -> Iterator[FilePart | FileGone]:
    """The parts of a file, read as they are taken; or that it is not what was announced."""
    try:
        with open(path, "rb") as file:
            offset = 0
            while (data := file.read(PART_BYTES)) or offset == content.size == 0:
                yield FilePart(content.digest, offset, data)
                offset += len(data)
                if offset >= content.size:
                    return
        yield _changed(path, content)
    except OSError as error:
        yield _unreadable(path, content, error)


def _changed(path: str, content: FileContent) -> FileGone:
    return FileGone(
        content.digest, f"{os.path.basename(path)} has changed at the service while it was needed; try again"
    )


def _unreadable(path: str, content: FileContent, error: OSError) -> FileGone:
    why = error.strerror or str(error)
    return FileGone(content.digest, f"{os.path.basename(path)} cannot be sent by the service: {why}")
