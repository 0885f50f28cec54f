"""The worker that knows what records of earlier programs mean: `python -m kintune.workers.upgrade_worker --fd N`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kintune.compiler.space.conversion import converted, is_of_today
from kintune.compiler.space.replay import load_workload
from kintune.errors import BuildError
from kintune.transfer.upgrade import NAMES, Converted, EarlierSketch
from kintune.wire import worker_loop as worker

__all__ = ["main"]


class _Handler:
    """Its stages are of kind `NAMES` or `CONVERT`; their context is empty."""

    def begin(self, kind: str, context: bytes) -> None:
        self._kind = kind

    def item(self, payload: bytes) -> bytes:
        """Those of the names that are of today, or an encoded `Converted` for an `EarlierSketch`."""
        if self._kind == NAMES:
            names = msgspec.msgpack.decode(payload, type=list[str])
            return msgspec.msgpack.encode([name for name in names if is_of_today(name)])
        return msgspec.msgpack.encode(_converted(msgspec.msgpack.decode(payload, type=EarlierSketch)))


def main(argv: Sequence[str] | None = None) -> None:
    """Run the worker that `kintune.transfer.upgrade` starts, which itself must not load the compiler."""
    worker.main("upgrade", lambda _arguments: (b"", _Handler()), argv)


def _converted(earlier: EarlierSketch) -> Converted:
    try:
        sketch, decided = converted(earlier.sketch, earlier.decided, load_workload(earlier.module))
    except BuildError:
        return Converted(None)
    return Converted(sketch, tuple(decided))


if __name__ == "__main__":
    main()
