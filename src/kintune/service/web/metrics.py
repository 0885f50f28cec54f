"""Figures for Prometheus, read when they are asked for."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kintune.service.job_status import JobStatus
from kintune.service.web.application_state import ApplicationState
from kintune.service.web.live_state import LiveState

__all__ = ["render"]

_MINUTES_S = 300.0


class _Figures(Collector):
    def __init__(self, rooms: ApplicationState, board: LiveState, *, connected: bool) -> None:
        self._rooms = rooms
        self._board = board
        self._connected = connected

    def collect(self) -> list[Metric]:
        jobs = GaugeMetricFamily("kintune_jobs", "Jobs by state.", labels=["state"])
        counts = self._rooms.docket.counts()
        for state in JobStatus:
            jobs.add_metric([state.value], counts.get(state, 0))
        running = GaugeMetricFamily("kintune_stages_running", "Stages that hold resources, by kind.", labels=["kind"])
        kinds: dict[str, int] = {}
        for stage in self._board.running():
            kinds[stage.kind] = kinds.get(stage.kind, 0) + 1
        for kind, count in sorted(kinds.items()):
            running.add_metric([kind], count)
        use = GaugeMetricFamily(
            "kintune_resource_use", "Share of the last five minutes in which it was busy.", labels=["resource"]
        )
        for resource, share in self._board.use(_MINUTES_S).items():
            use.add_metric([resource], share)
        measured = GaugeMetricFamily(
            "kintune_measurements", "Candidates measured in the last five minutes.", labels=["device"]
        )
        disturbed = GaugeMetricFamily(
            "kintune_measurements_disturbed", "Those of them that were disturbed and timed again.", labels=["device"]
        )
        for device, tally in self._board.tallies(_MINUTES_S).items():
            measured.add_metric([device], tally.measured)
            disturbed.add_metric([device], tally.disturbed)
        up = GaugeMetricFamily(
            "kintune_resource_up", "Whether stages can run on a host or a device.", labels=["resource", "kind", "what"]
        )
        for standing in self._board.standings:
            up.add_metric([standing.id, standing.kind, standing.what], float(not standing.lost))
        answers = GaugeMetricFamily("kintune_orchestrator_up", "Whether the orchestrator answers.")
        answers.add_metric([], float(self._connected))
        return [jobs, running, use, measured, disturbed, up, answers]


def render(rooms: ApplicationState, board: LiveState, *, connected: bool) -> bytes:
    """All figures, in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(rooms, board, connected=connected))
    return generate_latest(registry)
