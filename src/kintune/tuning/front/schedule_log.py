"""The file that a schedule is recorded in."""

from __future__ import annotations

from collections.abc import Sequence
from io import RawIOBase
from pathlib import Path
from types import TracebackType

from kintune.errors import StorageError
from kintune.scheduler.decisions import Decision
from kintune.scheduler.events import Event
from kintune.scheduler.recording import Header, RecordedStep, encode_line

__all__ = ["ScheduleLog"]


class ScheduleLog:
    """Writes what the scheduler hears and decides, line by line, as it happens; without a path it writes nothing."""

    def __init__(self, path: str | None, header: Header) -> None:
        self._path = path
        self._header = header
        self._file: RawIOBase | None = None

    def __enter__(self) -> ScheduleLog:
        if self._path is not None:
            try:
                self._file = Path(self._path).open("wb", buffering=0)
                self._file.write(encode_line(self._header))
            except OSError as error:
                raise StorageError(f"{self._path}: cannot be written ({error.strerror})") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def observe(self, event: Event, decisions: Sequence[Decision]) -> None:
        """Write one step.  A disk that refuses ends the recording, not the run."""
        if self._file is None:
            return
        try:
            self._file.write(encode_line(RecordedStep(event, tuple(decisions))))
        except OSError:
            self._file.close()
            self._file = None
