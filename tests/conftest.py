"""What all tests share: profiles of property tests, optional tools, and CI's right to have no test skipped."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from kintune.core.report import ProgressReport, RunReport
from kintune.errors import KintuneError
from kintune.tuning.front.driver import Ending, OnProgress, Scheduling
from kintune.tuning.front.request import TuneRequest
from tests.support.examples import MUTANTS, PROFILE, THOROUGH
from tests.support.order import long_first
from tests.support.quick_kernels import QuickKernels
from tests.support.reports import example_progress, example_report
from tests.support.tools import OptionalTools

pytest_plugins = ["tests.support.command", "tests.support.networks", "tests.support.worker", "tests.support.workloads"]

settings.register_profile("default", deadline=None)
settings.register_profile(THOROUGH, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    MUTANTS, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate]
)
settings.load_profile(PROFILE)

ROOT = Path(__file__).parents[1]
FORBID_SKIPS = "KINTUNE_FORBID_SKIPS"

_STATES: dict[str, Any] = {}  # of the generators of modules, as they were before the first test

OF_THE_CPU = "Skipped: this CPU "
"""How the reason of a skip begins that no installation would mend."""


class SkipWatch:
    """Turns a green session into a failed one when a test was skipped, unless the CPU lacks what it tests."""

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not hasattr(report, "wasxfail"):
            self._watch(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._watch(report)

    def _watch(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if report.skipped and not reason.startswith(OF_THE_CPU):
            self.skipped.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        if self.skipped and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.skipped:
            terminalreporter.section(f"{len(self.skipped)} skipped, which {FORBID_SKIPS} forbids", red=True)
            for nodeid in self.skipped:
                terminalreporter.line(nodeid)


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more threads wait busily in each of thousands of processes
    # Processes that tests start find what lies in tests/support.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    config.pluginmanager.register(OptionalTools(), "kintune-optional-tools")
    config.pluginmanager.register(QuickKernels(), "kintune-quick-kernels")
    if os.environ.get(FORBID_SKIPS):
        config.pluginmanager.register(SkipWatch(), "kintune-skip-watch")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Thousands of tests, none of which is garbage before the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = long_first(items)


@pytest.fixture(autouse=True)
def _own_places(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test touches the user's own records, or waits for a run on this machine."""
    base = tmp_path_factory.getbasetemp()
    monkeypatch.setenv("KINTUNE_RECORDS", str(base / "records-by-default.sqlite"))
    monkeypatch.setenv("KINTUNE_LOCK_DIR", str(base / "locks"))


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory of the test."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _own_draws(request: pytest.FixtureRequest) -> None:
    """What a test draws from its module's generator `RNG` does not depend on the tests that ran before it."""
    generator = getattr(request.module, "RNG", None)
    if generator is not None:
        _STATES.setdefault(request.module.__name__, generator.bit_generator.state)
        generator.bit_generator.state = _STATES[request.module.__name__]


class FakeFront:
    """Takes requests to tune, shows two reports, and answers with `outcome`, or with those of `outcomes` by model."""

    def __init__(self) -> None:
        self.requests: list[TuneRequest] = []
        self.scheduling: Scheduling | None = None
        self.outcome: RunReport | BaseException = example_report()
        self.outcomes: dict[str, RunReport | BaseException] = {}

    def tune(self, request: TuneRequest, on_progress: Callable[[ProgressReport], None] | None = None) -> RunReport:
        self.requests.append(request)
        if on_progress is not None:
            on_progress(example_progress(trials=1))
            on_progress(example_progress(trials=2))
        outcome = self.outcomes.get(request.model.name, self.outcome)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def tune_all(
        self,
        requests: Sequence[TuneRequest],
        scheduling: Scheduling,
        on_progress: OnProgress,
        on_failure: object = None,
    ) -> list[Ending]:
        self.scheduling = scheduling
        endings: list[Ending] = []
        for number, request in enumerate(requests):
            try:
                endings.append(self.tune(request, partial(on_progress, number)))
            except KintuneError as error:
                endings.append(error)
        return endings


@pytest.fixture
def fake_front(monkeypatch: pytest.MonkeyPatch) -> FakeFront:
    """Tuning without a tuner."""
    fake = FakeFront()
    monkeypatch.setattr("kintune.tuning.front.driver.tune", fake.tune)
    monkeypatch.setattr("kintune.tuning.front.driver.tune_all", fake.tune_all)
    return fake


@pytest.fixture
def hears_hangups() -> Iterator[None]:
    """SIGHUP does what it does by default, here and in what is started; under `nohup` it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
