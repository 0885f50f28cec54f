"""The check worker: `python -m kintune.tuning.front.check_worker --fd N`, which reads an isolated run's files first.

It is confined (`kintune.wire.confinement`), so that the front itself opens none of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from kintune.errors import WireError
from kintune.tuning.front.request import TuneRequest
from kintune.wire import worker_loop as worker
from kintune.wire.confinement import Confinement
from kintune.wire.worker_client import interview

__all__ = ["checked_apart", "main"]

_KIND = "check"
_FILES, _INPUTS, _PROGRAMS = "files", "inputs", "programs"
_MODULE = "kintune.tuning.front.check_worker"


def checked_apart(request: TuneRequest, *, exported: bool = False) -> TuneRequest:
    """Check an isolated request as `kintune.tuning.front.input_check.check_inputs` does, in a confined process.

    Returns it with what the model's file says of others: their paths, and the digest of the weights in them.

    Raises:
        InputError: something is wrong.
        EngineError: the process has died.
    """
    from kintune.models.digest import may_name_files
    from kintune.models.external import ExternalData
    from kintune.models.ref import ONNX

    model = request.model
    beside = request.beside
    if model.kind == ONNX and model.own and beside is None and may_name_files(Path(model.source)):
        with interview(_MODULE, confinement=Confinement(read=(model.source,))) as process:
            named = msgspec.msgpack.decode(process.ask(_FILES, payload=model.source.encode()), type=list[str])
        data = ExternalData(Path(model.source), own=True)
        beside = tuple(data.path_of(location) for location in named)
    request = msgspec.structs.replace(request, beside=beside or ())
    with interview(_MODULE, confinement=Confinement(read=request.files)) as process:
        kind = _PROGRAMS if exported else _INPUTS
        digest = process.ask(kind, payload=msgspec.msgpack.encode(request)).decode()
    return msgspec.structs.replace(request, external=digest)


class _CheckHandler:
    """Does the items of the three stages."""

    def __init__(self) -> None:
        self._stage = ""

    def begin(self, kind: str, context: bytes) -> None:
        del context
        self._stage = kind

    def item(self, payload: bytes) -> bytes:
        from kintune.models.graph_file import external_locations
        from kintune.tuning.front.input_check import check_inputs
        from kintune.tuning.front.request import weights_beside

        if self._stage == _FILES:
            return msgspec.msgpack.encode(external_locations(Path(payload.decode())))
        if self._stage not in (_INPUTS, _PROGRAMS):
            raise WireError(f"a check worker was asked for a stage of kind {self._stage!r}")
        request = msgspec.msgpack.decode(payload, type=TuneRequest)
        check_inputs(request, exported=self._stage == _PROGRAMS)
        return weights_beside(request.model).encode()


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main(_KIND, lambda _arguments: (b"", _CheckHandler()), argv)


if __name__ == "__main__":
    main()
