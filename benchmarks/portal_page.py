"""Measures the portal's page of a job with 20,000 trials: the first paint in Chromium, and what an update costs.

    PYTHONPATH=. python benchmarks/portal_page.py

A service of which only the web part runs has a job that is done and one that is searching, each after 20,000 trials
that made the curve better every time.  Each page is opened several times in a browser without a screen, with an empty
cache and then with a full one; the browser says when it painted first, and when the heading was there.  An update of
the page is made as the web part makes it once a second, and its time on the service's side is taken.  Results go to
`notebook/results/portal_page.json`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fastapi import Request
from nicegui import Client
from nicegui.page import page as nicegui_page

from kintune.core.report import ProgressReport
from kintune.service.job_repository import Job
from kintune.service.orchestrator.events import Progressed
from kintune.service.portal.frame import PageContext
from kintune.service.portal.job import JobView, read_job
from kintune.service.settings import ServiceSettings
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.live_state import LiveState
from kintune.testing.serving import serving
from tests.support.browsing import open_browser, wait_until_shown
from tests.support.portal_jobs import PortalJobs, report_of_layers
from tests.support.reports import example_progress

RESULTS = Path(__file__).parents[1] / "notebook/results" / "portal_page.json"
PAINTS = "return Object.fromEntries(performance.getEntriesByType('paint').map(e => [e.name, e.startTime]))"


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        place, data = Path(name), Path(name) / "data"
        data.mkdir()
        with ApplicationState(ServiceSettings(data=str(data))) as application:
            made = PortalJobs(application, place)
            model = made.model("resnet50")
            done = made.done(model, report_of_layers("resnet50", 1.32, trials=options.trials))
            tuning = made.tuning(model)
            found["update_ms"] = updates(application, tuning, options.trials)
        with serving(data, "--part", "web", ready="/healthz") as service:
            for kind, job in (("done", done), ("searching", tuning)):
                found[kind] = paints(f"{service.url}/jobs/{job.id}", options.repeats)
    document = {"date": datetime.date.today().isoformat(), "options": vars(options), **found}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(document, indent=1))


def paints(url: str, repeats: int) -> dict[str, dict[str, float]]:
    """Milliseconds from the request to the first paint and to the heading, with an empty and with a full cache."""
    times: dict[str, list[tuple[float, float]]] = {"empty cache": [], "full cache": []}
    for _ in range(repeats):
        with open_browser() as browser:
            for cache in times:
                begin = time.perf_counter()
                browser.get(url)
                wait_until_shown(browser)
                heading = 1e3 * (time.perf_counter() - begin)
                times[cache].append((browser.execute_script(PAINTS)["first-contentful-paint"], heading))
    return {
        cache: {
            "first_paint_ms": statistics.median(paint for paint, _ in found),
            "worst_first_paint_ms": max(paint for paint, _ in found),
            "heading_ms": statistics.median(heading for _, heading in found),
        }
        for cache, found in times.items()
    }


def updates(application: ApplicationState, job: Job, trials: int, repeats: int = 50) -> dict[str, float]:
    """Milliseconds that an update of the page of a searching job takes, each with another best latency."""
    live_state = LiveState(application.now)
    for number in range(trials):
        live_state.update(Progressed(job.id, progress(number)))
    request = Request({"type": "http", "method": "GET", "headers": [(b"host", b"127.0.0.1")], "http_version": "1.1",
                       "path": "/", "query_string": b"", "server": ("127.0.0.1", 80), "scheme": "http",
                       "client": ("127.0.0.1", 1)})  # fmt: skip
    context = PageContext(application, live_state, SimpleNamespace(), request)  # type: ignore[arg-type]
    times = []
    with Client(nicegui_page("/benchmark")):
        view = JobView(context, job)
        for number in range(repeats):
            live_state.update(Progressed(job.id, progress(trials + number)))
            begin = time.perf_counter()
            view.show(*read_job(context, job.id))
            times.append(1e3 * (time.perf_counter() - begin))
    return {"median": statistics.median(times), "worst": max(times)}


def progress(number: int) -> ProgressReport:
    """Where a search stands after so many trials."""
    return example_progress(trials=number, elapsed_s=number / 2, best_ms=1.0 + 20.0 / (1 + number / 100))


if __name__ == "__main__":
    main()
