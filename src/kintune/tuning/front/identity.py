"""Which runs are the same work."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from kintune.core.candidate import digest_of
from kintune.core.elementary_version import ELEMENTARY
from kintune.core.feature_version import FEATURES
from kintune.core.protocol import OPERANDS, Protocol
from kintune.hardware.software import TVM_VERSION
from kintune.models.constants import describe_constants
from kintune.tuning.front.request import TuneRequest

__all__ = ["run_key"]


def run_key(request: TuneRequest, threads: int, cpu: str, owner: str = "") -> str:
    """Digest of what makes two requests the same work: whose it is, the model, the options, what times are true for.

    A model in a file is known by the file's content, so that a copy is the same and an edit is not.  An unfinished run
    of another processor, compiler, protocol or feature extraction is other work: its decisions could not be made again
    here, nor its times compared.
    """
    model = request.model
    source = _content(Path(model.source)) if os.path.exists(model.source) else model.source
    parts = (model.kind, source, sorted(model.shapes.items()), sorted(model.options.items()))
    protocol = (Protocol(threads=threads).version, OPERANDS)
    device = (request.target, threads, cpu, TVM_VERSION, ELEMENTARY, protocol, FEATURES)
    mine: tuple[object, ...] = (owner,) if owner else ()
    if model.constants:
        mine = (*mine, "constants", describe_constants(model.constants))
    return digest_of(msgspec.msgpack.encode((parts, device, request.options, *mine)))


def _content(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
