"""Requests that mean harm, drawn from the service's own description: no error of the service, and one line each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from kintune.service.access import Scope
from kintune.service.model_store import Findings
from kintune.service.web import models
from tests.support.openapi_values import Drawn, operations_of
from tests.support.portal_jobs import PortalJobs, report_of_layers
from tests.support.web_service import browser_of, client_of, opened_application

KNOWN: dict[str, list[Any]] = {
    "digest": ["0" * 63 + "1", "0" * 63 + "2"],
    "name": ["user0", "user1"],
    "user": ["user0", "user1"],
}
"""Values of parameters that lead to something."""


class Service:
    """Asks a service; `operations` are all but what answers until a job is over, and what says that nothing tunes."""

    def __init__(self, ask: Callable[[Drawn], httpx.Response]) -> None:
        self.ask = ask
        found = operations_of(ask(Drawn("GET", "/openapi.json", b"", {})).json(), KNOWN)
        self.operations = [each for each in found if not each.path.endswith(("/events", "/readyz"))]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One that has models, sets of inputs, users and jobs."""
    folder = tmp_path_factory.mktemp("service")

    async def look(path: Path, **options: Any) -> Findings:
        return Findings()

    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(models, "inspect_upload", look)  # a process each; it has tests of its own
        application = stack.enter_context(opened_application(folder))
        made = PortalJobs(application, folder)
        model, inputs = made.model("resnet"), made.inputs("images")
        jobs = [made.done(model, report_of_layers("resnet", 1.7)), made.job(model), made.failed(model, "no memory")]
        KNOWN.update(job=[job.id for job in jobs], model=[model], inputs=[inputs], token=[1, 2])
        KNOWN.update(minutes=[5.0], until=[None], shapes=[{"image": [1, 3, 224, 224]}], device=["local-cpu"])
        browser = stack.enter_context(browser_of(application))
        users = (f"user{number}" for number in itertools.count())

        def ask(asked: Drawn) -> httpx.Response:
            """Ask as somebody who may do everything; once they have locked themselves out, as another one."""
            nonlocal headers
            answer = client.request(asked.method, asked.path, content=asked.body, headers=asked.headers | headers)
            if answer.status_code == 401:
                headers = dict(client_of(application, browser, next(users), scope=Scope.ADMIN).headers)
            return answer

        client = TestClient(browser.app, base_url=str(browser.base_url), raise_server_exceptions=False)
        headers = dict(client_of(application, browser, next(users), scope=Scope.ADMIN).headers)
        yield Service(ask)


@given(seed=st.integers(0, (1 << 32) - 1))
def test_a_request_is_answered_or_refused_in_one_line(service: Service, seed: int) -> None:
    random = Random(seed)
    asked = random.choice(service.operations).draw(random)
    answer = service.ask(asked)
    assert answer.status_code < 500, asked
    if answer.status_code >= 400:
        told = answer.json()
        assert told.keys() == {"error", "kind"}, asked
        assert told["error"], asked
        assert told["error"].isprintable(), asked
