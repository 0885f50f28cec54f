"""The orchestrator: `python -m kintune.service.orchestrator.process SETTINGS.json`, started by `kintune serve`."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec

from kintune.doctor.software import require_tried_versions
from kintune.engine.devices import cores_lock
from kintune.engine.local import LocalEngine
from kintune.errors import KintuneError
from kintune.front.journal import TuningJournal
from kintune.front.place import choose_place
from kintune.measure.about import DeviceAbout
from kintune.records import Store
from kintune.scheduler.decisions import Decision, Start
from kintune.scheduler.events import Event, StageDone, StageFailed
from kintune.scheduler.machine import Machine
from kintune.scheduler.policies import policy
from kintune.service.calls import Calls
from kintune.service.content import Content
from kintune.service.database import open_database
from kintune.service.docket import Docket
from kintune.service.library import Library
from kintune.service.orchestrator.bus import Bus
from kintune.service.orchestrator.desk import Desk
from kintune.service.orchestrator.intake import Intake
from kintune.service.orchestrator.news import StageBegan, StageEnded
from kintune.service.settings import Settings
from kintune.space.feature_version import FEATURES

__all__ = ["main", "orchestrate"]


def main(argv: Sequence[str] | None = None) -> int:
    """Orchestrate until told to leave by SIGTERM; the exit code is 0 then."""
    (path,) = sys.argv[1:] if argv is None else argv
    settings = msgspec.json.decode(Path(path).read_bytes(), type=Settings)
    try:
        orchestrate(settings)
    except KintuneError as error:
        print(f"kintune: error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def orchestrate(settings: Settings) -> None:
    """Serve the jobs of the database until SIGTERM or SIGINT.

    Raises what makes it impossible: TargetError for the device, StorageError, EngineError.
    """
    require_tried_versions()
    place = choose_place(settings.device, None)
    settings.work.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        stack.enter_context(cores_lock(place.cores))
        database = stack.enter_context(closing(open_database(settings.service_database)))
        store = stack.enter_context(Store.open(settings.records))
        content = Content(settings.content)
        docket, library = Docket(database), Library(database)
        journal = TuningJournal(store, FEATURES)
        news: list[Bus] = []
        running: dict[tuple[str, str], str] = {}

        def observe(event: Event, decisions: Sequence[Decision]) -> None:
            """Tell which stages run where."""
            if isinstance(event, StageDone | StageFailed):
                job = running.pop((event.job, event.stage), "")
                if job and news:
                    news[0].publish(StageEnded(job, event.stage, time.time()))
            for decision in decisions:
                if isinstance(decision, Start) and news:
                    job = desk.job_of(decision.job)
                    running[decision.job, decision.stage] = job
                    kind = decision.stage.rstrip("0123456789-.")
                    news[0].publish(StageBegan(job, decision.stage, kind, decision.placement, time.time()))

        engine = stack.enter_context(
            LocalEngine(
                Machine(policy(settings.policy)),
                journal,
                place.commands(settings.target),
                place.resources(),
                log=settings.directory / "engine.log",
                observe=observe,
            )
        )
        about = msgspec.msgpack.decode(engine.about("device", place.names[0]), type=DeviceAbout)
        bus = Bus(settings.socket, lambda: engine.post(desk.look_around))
        stack.callback(bus.close)
        news.append(bus)
        desk = Desk(
            docket,
            Calls(database),
            content,
            Intake(settings, library, content, store, place),
            engine,
            journal,
            about,
            at_once=settings.jobs_at_once,
            now=time.time,
            publish=bus.publish,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: engine.leave())
        engine.post(desk.look_around)
        engine.serve(on_progress=desk.progressed, on_stage=desk.stage_began, on_end=desk.ended)


if __name__ == "__main__":
    os._exit(main())
