"""The web process: `python -m kintune.service.web.process SETTINGS.json`, started by `kintune serve`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import uvicorn

from kintune.errors import KintuneError, StorageError
from kintune.service import logs
from kintune.service.portal.frame import mount
from kintune.service.settings import ServiceSettings
from kintune.service.supervisor import end_with_parent
from kintune.service.web.app import make_app
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.connections import MOST_HEADER_BYTES, ImpatientProtocol
from kintune.tuning.front.placement import choose_placement

__all__ = ["main", "step_aside"]
_KEPT_S = 75  # a connection that is silent: clients that poll need no new one each time


def step_aside(settings: ServiceSettings) -> None:
    """Runs this process at idle priority, and off the devices' cores where there are more than two cores in all."""
    mine = os.sched_getaffinity(0)
    try:
        measuring = {core for cores in choose_placement(settings.device, None).devices for core in cores}
    except KintuneError:  # a GPU that does not answer is the orchestrator's to complain of
        measuring = set()
    if len(mine) > 2 and mine - measuring:
        os.sched_setaffinity(0, mine - measuring)
    os.nice(19)
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM; returns the exit code: 0, EX_TEMPFAIL for storage trouble, or 1."""
    path, *parent_pipe = sys.argv[1:] if argv is None else argv
    end_with_parent(parent_pipe)
    settings = msgspec.json.decode(Path(path).read_bytes(), type=ServiceSettings)
    logs.configure("web")
    step_aside(settings)
    try:
        with ApplicationState(settings) as application:
            app = make_app(application)
            mount(app)
            config = uvicorn.Config(
                app, host=settings.host, port=settings.port, log_config=None, access_log=False,
                server_header=False, timeout_graceful_shutdown=5, timeout_keep_alive=_KEPT_S,
                http=ImpatientProtocol, h11_max_incomplete_event_size=MOST_HEADER_BYTES,
            )  # fmt: skip
            uvicorn.Server(config).run()
    except StorageError as error:  # a full disk, a server that is away: it passes
        logging.getLogger(__name__).error("%s", error)
        return os.EX_TEMPFAIL
    except KintuneError as error:
        logging.getLogger(__name__).error("%s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
