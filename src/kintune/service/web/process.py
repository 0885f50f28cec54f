"""The web process: `python -m kintune.service.web.process SETTINGS.json`, started by `kintune serve`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvicorn

from kintune.errors import KintuneError
from kintune.service.settings import Settings
from kintune.service.web.app import make_app
from kintune.service.web.rooms import Rooms

__all__ = ["main", "step_aside"]


def step_aside() -> None:
    """Run only when nobody else wants to, so that serving pages disturbs no measurement."""
    os.nice(19)
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    (path,) = sys.argv[1:] if argv is None else argv
    settings = msgspec.json.decode(Path(path).read_bytes(), type=Settings)
    step_aside()
    try:
        with Rooms(settings) as rooms:
            rooms.content.sweep_incoming()
            config = uvicorn.Config(
                make_app(rooms), host=settings.host, port=settings.port, log_level="warning", server_header=False,
                timeout_graceful_shutdown=5,
            )  # fmt: skip
            uvicorn.Server(config).run()
    except KintuneError as error:
        print(f"kintune: error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
