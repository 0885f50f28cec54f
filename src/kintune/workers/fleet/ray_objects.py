"""Files of the front in a Ray cluster's object store: put there once, however many nodes need them."""

from __future__ import annotations

import threading
from typing import Any

from kintune.workers.fleet.content_cache import FileContent

__all__ = ["RayObjects"]

_PART = 32 << 20  # bytes of a file in one object
_MOST_BYTES = 2 << 30


class RayObjects:
    """References to files in the object store, which keeps what is referred to.

    At most `most_bytes` bytes are kept, beside the file that was put last; the file that was used longest ago goes
    first.  Nodes that need it later have it put again.
    """

    def __init__(self, ray: Any, most_bytes: int = _MOST_BYTES) -> None:
        self._ray = ray
        self._most_bytes = most_bytes
        self._kept: dict[FileContent, list[Any]] = {}  # the last one was used last
        self._lock = threading.Lock()

    def put(self, path: str, content: FileContent) -> list[Any]:
        """References to the parts of the file at `path`, in order; it is read only if it is not in the store.

        Takes as long as reading the file; may be called from several threads.

        Raises:
            OSError: the file cannot be read, or the store does not take it.
        """
        with self._lock:
            references = self._kept.pop(content, None)
            if references is None:
                references = self._read(path)
            self._kept[content] = references
            others = [each for each in self._kept if each != content]
            total = sum(each.size for each in others)
            for other in others:
                if total + content.size <= self._most_bytes:
                    break
                del self._kept[other]
                total -= other.size
            return references

    def forget(self, content: FileContent) -> None:
        """Read the file the next time."""
        with self._lock:
            self._kept.pop(content, None)

    def clear(self) -> None:
        """The store is gone, with all that was in it."""
        with self._lock:
            self._kept.clear()

    def _read(self, path: str) -> list[Any]:
        references: list[Any] = []
        with open(path, "rb") as file:
            while (data := file.read(_PART)) or not references:
                try:
                    references.append(self._ray.put(data))
                except Exception as error:  # Ray's own, of many kinds
                    raise OSError(f"Ray's object store does not take it: {str(error).splitlines()[0]}") from error
                if len(data) < _PART:
                    break
        return references
