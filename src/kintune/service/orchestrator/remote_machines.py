"""The ways by which machines elsewhere join the engine: at the gate, and by a Ray cluster."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack

from kintune.core.device import DeviceDescription
from kintune.errors import StorageError
from kintune.hardware.gpus import GPU
from kintune.records import Store
from kintune.records.database import Database
from kintune.service.machines import MachineRegistry
from kintune.service.orchestrator.admission import Admission
from kintune.service.orchestrator.agent_listener import AgentListener
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from kintune.tuning.front.placement import DEVICE, choose_placement
from kintune.workers.engine.local import LocalEngine
from kintune.workers.fleet.backlog import Backlog
from kintune.workers.fleet.growth import Growth
from kintune.workers.fleet.messages import Join
from kintune.workers.fleet.ray_cluster import Growing, RayCluster, ray_address

__all__ = ["open_ways"]

_log = logging.getLogger(__name__)


def open_ways(
    settings: ServiceSettings,
    database: Database,
    compiler: str,
    store: Store,
    engine: LocalEngine,
    backlog: Backlog,
    cores_a_job: int,
) -> ExitStack:
    """Open what the settings say; closing the stack closes it.  `backlog` is told what the engine does.

    Raises:
        EngineError: nobody can come in at the gate, or there is no such cluster.
    """

    def joined(join: Join, types: Sequence[DeviceDescription]) -> None:
        def note() -> None:
            try:
                for device, known in zip(join.devices, types, strict=True):
                    store.devices.add(known.device_type)
                    if device.peak is not None and store.devices.peak(known.device_type.digest) is None:
                        store.devices.note_peak(known.device_type.digest, device.peak)
            except StorageError as error:  # nobody needs it at once; it is measured again
                _log.error("what %s reaches could not be kept: %s", join.name, error)

        engine.post(note)
        if 0 < join.cores < cores_a_job:
            _log.warning(
                "machine %s has %d cores and a build takes %d, so it gets none; see --cores-a-job",
                join.name,
                join.cores,
                cores_a_job,
            )
        devices = ", ".join(device.type for device in join.devices) or "none"
        _log.info("machine %s joins; cores to build on: %d, devices: %s", join.name, join.cores, devices)

    roll = MachineRegistry(database, compiler, frozenset({DEVICE, GPU, settings.device_name}), settings.alike)
    admission = Admission(roll, joined, time.time)
    with ExitStack() as ways:
        if settings.agents_port:
            gate = AgentListener((settings.agents_host, settings.agents_port), Users(database), admission, engine)
            ways.callback(gate.close)
            _log.info("machines elsewhere may join at port %d", gate.port)
        address = ray_address(settings.engine)
        if address is not None:
            cores = len(choose_placement(settings.device, None).host)
            growing = Growing(backlog, Growth(settings.grow_after_s, settings.grow_to)) if settings.grow_to else None
            park = RayCluster(address, engine, admission.of_a_cluster, cores=cores, growing=growing)
            ways.callback(park.close)
            _log.info("the nodes of the Ray cluster may join")
        return ways.pop_all()
