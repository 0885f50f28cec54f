"""What the service's processes log: a JSON document a line, with the job it is about."""

from __future__ import annotations

import logging
import sys
from datetime import datetime, timezone
from typing import TypeAlias

import msgspec

__all__ = ["configure", "job_logger"]

Logger: TypeAlias = "logging.LoggerAdapter[logging.Logger]"


class _Lines(logging.Formatter):
    """`at`, `level`, `part` and `message`, and where they are known `job` and `error`."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "at": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": self._part,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if job := getattr(record, "job", ""):
            line["job"] = job
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def configure(part: str) -> None:
    """Log to standard error, as this part of the service."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(part))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "alembic", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def job_logger(name: str, job: str) -> Logger:
    """A logger whose lines are about one job."""
    return logging.LoggerAdapter(logging.getLogger(name), {"job": job})
