"""A stand-in for `kintune.wire.worker_client.interview`, which starts no process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from kintune.core.device import DeviceDescription

__all__ = ["FakeInterview"]


class FakeInterview:
    """Answers as a device worker does, by the kind of question; `asked` has the kinds, one for each question."""

    def __init__(self, about: DeviceDescription, **answers: Any) -> None:
        self.about = msgspec.msgpack.encode(about)
        self.answers = answers
        self.asked: list[str] = []

    @contextmanager
    def __call__(self, *_: object) -> Iterator[FakeInterview]:
        yield self

    def ask(self, kind: str, context: bytes = b"", payload: bytes = b"") -> bytes:
        self.asked.append(kind)
        return msgspec.msgpack.encode(self.answers[kind])
