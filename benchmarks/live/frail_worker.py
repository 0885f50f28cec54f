"""The worker of a mock device that is unwell while a file is there: `python -m live.frail_worker FILE --fd N`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kintune.errors import DeviceUnwell
from kintune.wire import worker_loop as worker
from kintune_lab.simulate.mock_process import MOCK_WORKER
from kintune_lab.simulate.mock_worker import MockHandler


class FrailHandler(MockHandler):
    """Sleeps for as long as an item says, if it is well."""

    def __init__(self, unwell: Path) -> None:
        super().__init__()
        self._unwell = unwell

    def item(self, payload: bytes) -> bytes:
        """Sleep."""
        if self._unwell.exists():
            raise DeviceUnwell("its reference kernel takes three times as long as it should")
        return super().item(payload)


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until the front closes the channel."""
    worker.main(MOCK_WORKER, lambda arguments: (b"", FrailHandler(Path(arguments[0]))), argv)


if __name__ == "__main__":
    main()
