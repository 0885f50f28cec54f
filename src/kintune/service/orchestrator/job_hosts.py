"""Where jobs' own processes live: with the orchestrator, or on the nodes of a cluster."""

from __future__ import annotations

from kintune.errors import InputError
from kintune.scheduler.resources import Host, Resource
from kintune.service.settings import ServiceSettings
from kintune.tuning.front.placement import HOST, Placement
from kintune.wire.child import ResourceLimits
from kintune.workers.engine.process import Anywhere, Command

__all__ = ["JobHosts"]


class JobHosts:
    """What of this machine works, and how processes that belong to jobs are started."""

    def __init__(self, settings: ServiceSettings, place: Placement) -> None:
        """Raises InputError where this machine's own device would be disturbed by a node of a cluster."""
        self._place = place
        self._local = settings.engine == "local"
        self._cores = settings.cores_a_job
        self._at_once = settings.jobs_at_once
        if not self._local and place.shared:
            raise InputError(
                f"--engine {settings.engine}: nodes of a cluster may build on any core of this machine; give its own "
                "device cores that it has alone: --device cpu:1"
            )

    @property
    def home(self) -> str | None:
        """The host that jobs' own processes live on, where it is always the same."""
        return HOST if self._local else None

    @property
    def cores(self) -> int:
        """How many cores a job's own stages and its builds take."""
        if self._cores:
            return self._cores
        return max(1, len(self._place.host) // min(self._at_once, len(self._place.host))) if self._local else 1

    def resources(self) -> list[Resource]:
        """What of this machine the scheduler can give; its cores only where no cluster has them."""
        return [each for each in self._place.resources() if self._local or not isinstance(each, Host)]

    def command(self, module: str, memory_mb: int | None = None) -> Command | Anywhere:
        """How a process of a job is started."""
        if self._local:
            return self._place.on_host(module, memory_mb=memory_mb)
        threads = {"TVM_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        return Anywhere(module, environment=threads, limits=ResourceLimits(address_space_mb=memory_mb))
