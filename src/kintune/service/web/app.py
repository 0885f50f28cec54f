"""The application: API, health, metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from kintune.core.version import __version__
from kintune.errors import KintuneError
from kintune.service.orchestrator.events import Changed, News
from kintune.service.web import jobs, live, models, operators
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.authentication import install_error_handlers
from kintune.service.web.background_tasks import BackgroundTasks
from kintune.service.web.live_state import LiveState
from kintune.service.web.metrics import render
from kintune.service.web.middleware import LimitBodies, SecurityHeaders
from kintune.service.web.orchestrator_client import OrchestratorClient
from kintune.service.web.use_cases import UseCases

__all__ = ["make_app"]


def make_app(rooms: ApplicationState) -> FastAPI:
    """The application over these rooms, without the portal."""
    board = LiveState(rooms.now)
    errands = BackgroundTasks(rooms)

    def told(news: News) -> None:
        board.told(news)
        if isinstance(news, Changed) and news.state.over:
            errands.look()

    line = OrchestratorClient(rooms.settings.socket, told, board.forget_what_runs)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        line.start()
        errands.start()
        try:
            yield
        finally:
            await line.close()
            await errands.close()

    app = FastAPI(title="Kintune", version=__version__, lifespan=life, docs_url="/api/docs", redoc_url=None)
    app.state.rooms, app.state.board, app.state.line = rooms, board, line
    app.state.counter = UseCases(rooms, line.poke)
    install_error_handlers(app)
    for part in (jobs, models, live, operators):
        app.include_router(part.router)

    app.add_middleware(LimitBodies, rooms=rooms)

    app.add_middleware(SecurityHeaders)

    @app.get("/healthz", tags=["operations"])
    def alive() -> dict[str, str]:
        """Whether the web process answers."""
        return {"status": "alive", "version": __version__}

    @app.get("/readyz", tags=["operations"])
    def ready() -> JSONResponse:
        """Whether jobs can be taken and worked on: database and orchestrator answer."""
        problems = [] if line.connected else ["the orchestrator does not answer"]
        try:
            rooms.docket.counts()
        except KintuneError as error:
            problems.append(str(error))
        return JSONResponse({"ready": not problems, "problems": problems}, 503 if problems else 200)

    @app.get("/metrics", tags=["operations"])
    def metrics() -> Response:
        """For Prometheus."""
        return Response(render(rooms, board, connected=line.connected), media_type=CONTENT_TYPE_LATEST)

    return app
