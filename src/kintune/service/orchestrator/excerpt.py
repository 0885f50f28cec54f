"""What one run's processes have said, out of the engine's log."""

from __future__ import annotations

from pathlib import Path

__all__ = ["excerpt"]

_MOST = 1 << 20  # bytes, the last ones


def excerpt(log: Path, run: str) -> bytes:
    """The lines about a run; of very many the last ones."""
    found: list[bytes] = []
    size = 0
    if log.exists():
        about = f"job {run}".encode()
        with log.open("rb") as file:
            for line in file:
                if about in line:
                    found.append(line)
                    size += len(line)
                    while size > _MOST:
                        size -= len(found.pop(0))
    return b"".join(found)
