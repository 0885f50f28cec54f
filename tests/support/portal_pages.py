"""A service of which only the portal runs, with jobs in every state that never ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kintune.service.job_repository import Job
from kintune.service.model_store import Findings
from kintune.service.settings import ServiceSettings
from kintune.service.web.application_state import ApplicationState
from kintune.testing.serving import serving
from tests.support.portal_jobs import PortalJobs, report_of_layers

__all__ = ["Pages", "portal_pages"]


@dataclass
class Pages:
    """A service of which only the web part runs, with jobs in every state."""

    url: str
    done: Job
    narrow: Job
    other: Job
    tuning: Job
    failed: Job
    cancelled: Job
    model: int
    broken: int

    @property
    def paths(self) -> dict[str, str]:
        """Each kind of page, by a name."""
        return {
            "jobs": "/",
            "no-such-jobs": "/?q=nothing-like-that",
            "job-done": f"/jobs/{self.done.id}",
            "job-narrow": f"/jobs/{self.narrow.id}",
            "job-tuning": f"/jobs/{self.tuning.id}",
            "job-failed": f"/jobs/{self.failed.id}",
            "job-cancelled": f"/jobs/{self.cancelled.id}",
            "new": "/new",
            "new-form": f"/new?model={self.model}",
            "new-broken": f"/new?model={self.broken}",
            "models": "/models",
            "devices": "/devices",
            "compare": f"/compare?job={self.done.id}&job={self.narrow.id}&job={self.other.id}",
            "compare-choice": "/compare",
            "not-found": "/jobs/000000000000",
            "sign-in": "/sign-in?wrong=1",
        }


@contextmanager
def portal_pages(place: Path) -> Iterator[Pages]:
    """Such a service, whose data lie in `place`, while the context is open."""
    data = place / "data"
    data.mkdir()
    with ApplicationState(ServiceSettings(data=str(data))) as application:
        made = PortalJobs(application, place)
        model, small = made.model("resnet50"), made.model("mobilenet_v2")
        made.inputs("a set of pictures with quite a long name that goes on and on")
        broken = made.model("broken", Findings(problem="it is no ONNX file, or one without a network in it"))
        for number in range(24):
            made.done(small, report_of_layers("mobilenet_v2", 1.5 + 0.05 * number, trials=64, seed=number), 7200.0)
        found = {
            "done": made.done(model, report_of_layers("resnet50", 1.32), 700.0, until="onnxruntime*0.8"),
            "narrow": made.done(
                model,
                report_of_layers("resnet50", 1.05, norm_error=0.0039, held_back=8, seed=1),
                650.0,
                precision="bf16",
                max_error=0.01,
            ),
            "other": made.done(small, report_of_layers("mobilenet_v2", 1.80, seed=2)),
            "failed": made.failed(model, "resnet50: output 'y': 3 of 512 values differ"),
            "cancelled": made.cancelled(small),
            "tuning": made.tuning(model),
        }
    with serving(data, "--part", "web", ready="/healthz") as running:
        yield Pages(running.url, model=model, broken=broken, **found)
