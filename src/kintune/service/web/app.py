"""The web application: the API's routers, health and readiness, and metrics for Prometheus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from kintune.core.version import __version__
from kintune.errors import KintuneError
from kintune.service.job_status import JobStatus
from kintune.service.orchestrator.events import Changed, News, Standing
from kintune.service.web import inputs, jobs, live, models, operators, profiles
from kintune.service.web.api_page import api_page
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import Reader, install_error_handlers
from kintune.service.web.background_tasks import BackgroundTasks
from kintune.service.web.live_state import LiveState
from kintune.service.web.middleware import LimitBodies, SecurityHeaders
from kintune.service.web.orchestrator_client import OrchestratorClient
from kintune.service.web.use_cases import UseCases

__all__ = ["make_app", "render"]
_MINUTES_S = 300.0
_GROUP = ("kind", "type")


def make_app(application: ApplicationState) -> FastAPI:
    """Build the application, without the portal."""
    live_state = LiveState(application.now)
    background_tasks = BackgroundTasks(application)

    def told(news: News) -> None:
        live_state.update(news)
        if isinstance(news, Changed) and news.state.over:
            background_tasks.look()

    orchestrator = OrchestratorClient(application.settings.socket, told, live_state.forget_what_runs)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        orchestrator.start()
        background_tasks.start()
        try:
            yield
        finally:
            await orchestrator.close()
            await background_tasks.close()

    app = FastAPI(title="Kintune", version=__version__, lifespan=life, openapi_url=None)
    app.state.application, app.state.live_state, app.state.orchestrator = application, live_state, orchestrator
    app.state.use_cases = UseCases(application, orchestrator.poke)
    install_error_handlers(app)
    for part in (jobs, profiles, models, inputs, live, operators):
        app.include_router(part.router)

    app.add_middleware(LimitBodies, application=application)

    app.add_middleware(SecurityHeaders)

    @app.get("/healthz", tags=["operations"])
    def alive() -> dict[str, str]:
        """Whether the web process answers."""
        return {"status": "alive", "version": __version__}

    @app.get("/readyz", tags=["operations"])
    def ready() -> JSONResponse:
        """Whether jobs can be taken and worked on: database and orchestrator answer, and it waits for nothing."""
        problems = [live_state.unready] if live_state.unready else []
        try:
            application.jobs.counts()
        except KintuneError as error:
            problems.append(str(error))
        return JSONResponse({"ready": not problems, "problems": problems}, 503 if problems else 200)

    @app.get("/metrics", tags=["operations"], response_class=PlainTextResponse)
    def metrics(visitor: Reader) -> Response:
        """For Prometheus, which sends a token; no host and no device has its name there."""
        return Response(render(application, live_state), media_type=CONTENT_TYPE_LATEST)

    @app.get("/openapi.json", include_in_schema=False)
    def description(visitor: Reader) -> JSONResponse:
        return JSONResponse(app.openapi())

    @app.get("/api/docs", include_in_schema=False)
    def documentation(visitor: Reader) -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()))

    app.router.routes.append(Route("/api/{rest:path}", _NothingThere(app), include_in_schema=False))
    return app


class _NothingThere:
    """Answers for what is no path of the API, or has no such method; else the portal's pages would."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Leave it to the route that has the path, which knows its methods."""
        for route in self._app.routes:
            match, more = route.matches(scope)
            if match is Match.PARTIAL:
                scope.update(more)
                await route.handle(scope, receive, send)
                return
        raise HTTPException(404, "the API has nothing at this path; /api/docs describes it")


class _Metrics(Collector):
    def __init__(self, application: ApplicationState, live_state: LiveState) -> None:
        self._application = application
        self._live_state = live_state

    def collect(self) -> list[Metric]:
        jobs = GaugeMetricFamily("kintune_jobs", "Jobs by state.", labels=["state"])
        counts = self._application.jobs.counts()
        for state in JobStatus:
            jobs.add_metric([state.value], counts.get(state, 0))
        running = GaugeMetricFamily("kintune_stages_running", "Stages that hold resources, by kind.", labels=["kind"])
        kinds: dict[str, int] = {}
        for stage in self._live_state.running():
            kinds[stage.kind] = kinds.get(stage.kind, 0) + 1
        for kind, count in sorted(kinds.items()):
            running.add_metric([kind], count)
        answers = GaugeMetricFamily("kintune_orchestrator_up", "Whether the orchestrator works on jobs.")
        answers.add_metric([], float(not self._live_state.unready))
        return [jobs, running, *self._resources(), answers]

    def _resources(self) -> list[Metric]:
        """The hosts together, and the devices of each type: names of machines are for who is signed in."""
        standings, busy = self._live_state.standings, self._live_state.use(_MINUTES_S)
        tallies = self._live_state.tallies(_MINUTES_S)
        there = GaugeMetricFamily("kintune_resources", "Hosts, and devices of each type.", labels=_GROUP)
        up = GaugeMetricFamily("kintune_resources_up", "Those of them on which stages can run.", labels=_GROUP)
        use = GaugeMetricFamily(
            "kintune_resource_use", "Mean share of the last five minutes in which they were busy.", labels=_GROUP
        )
        measured = GaugeMetricFamily(
            "kintune_measurements", "Candidates measured in the last five minutes.", labels=["type"]
        )
        disturbed = GaugeMetricFamily(
            "kintune_measurements_disturbed", "Candidates that were disturbed and timed again.", labels=["type"]
        )
        groups: dict[tuple[str, str], list[Standing]] = {}
        for standing in standings:
            type = standing.what if standing.kind == "device" else ""
            groups.setdefault((standing.kind, type), []).append(standing)
        for (kind, type), members in sorted(groups.items()):
            there.add_metric([kind, type], len(members))
            up.add_metric([kind, type], sum(not each.lost for each in members))
            use.add_metric([kind, type], sum(busy.get(each.id, 0.0) for each in members) / len(members))
            if kind == "device":
                counted = [tallies[each.id] for each in members if each.id in tallies]
                measured.add_metric([type], sum(tally.measured for tally in counted))
                disturbed.add_metric([type], sum(tally.disturbed for tally in counted))
        return [there, up, use, measured, disturbed]


def render(application: ApplicationState, live_state: LiveState) -> bytes:
    """Returns all metrics in the text format of Prometheus."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(application, live_state))
    return generate_latest(registry)
