"""Which runs are the same work."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from kintune.front.request import TuneRequest
from kintune.space.candidate import digest_of

__all__ = ["run_key"]


def run_key(request: TuneRequest, threads: int) -> str:
    """Digest of what makes two requests the same work: the model, the target, the threads, and the options.

    A model in a file is known by the file's content, so that a copy is the same and an edit is not.
    """
    model = request.model
    source = _content(Path(model.source)) if os.path.exists(model.source) else model.source
    parts = (model.kind, source, sorted(model.shapes.items()), sorted(model.options.items()))
    return digest_of(msgspec.msgpack.encode((parts, request.target, threads, request.options)))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
