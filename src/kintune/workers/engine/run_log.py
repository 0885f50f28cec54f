"""The log file of a run: what its processes print, and what the engine has to remark.  Nothing reaches the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

__all__ = ["RunLog"]


class RunLog:
    """Appends lines, each under the name of who says it; without a path it swallows them."""

    def __init__(self, path: Path | None) -> None:
        self._file: BinaryIO | None = None if path is None else path.open("ab", buffering=0)

    def write(self, who: str, *lines: str) -> None:
        """Append lines.  A log that cannot be written to any more is given up, the run is not."""
        if self._file is None:
            return
        try:
            self._file.write("".join(f"[{who}] {line}\n" for line in lines).encode(errors="replace"))
        except OSError:
            self.close()

    def close(self) -> None:
        """Close the file; what is written after is swallowed."""
        if self._file is not None:
            self._file.close()
            self._file = None
