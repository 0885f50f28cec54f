from __future__ import annotations

import pytest

from kintune.errors import InputError
from kintune.scheduler.resources import Device, Host
from kintune.service.orchestrator.job_hosts import JobHosts
from kintune.service.settings import ServiceSettings
from kintune.tuning.front.placement import HOST, Placement
from kintune.workers.engine.process import Anywhere, Command

ALONE = Placement(((3,),), (0, 1, 2))


def test_jobs_live_with_the_orchestrator() -> None:
    lodging = JobHosts(ServiceSettings(data="d", jobs_at_once=2), Placement(((0, 1, 2, 3),), (0, 1, 2, 3)))
    assert lodging.home == HOST
    assert lodging.cores == 2
    assert [type(each) for each in lodging.resources()] == [Host, Device]
    assert isinstance(lodging.command("a.module"), Command)


def test_jobs_live_on_the_nodes_of_a_cluster() -> None:
    lodging = JobHosts(ServiceSettings(data="d", engine="ray", cores_a_job=4), ALONE)
    assert lodging.home is None
    assert lodging.cores == 4
    (device,) = lodging.resources()
    assert isinstance(device, Device)
    command = lodging.command("a.module", 500)
    assert isinstance(command, Anywhere)
    assert (command.module, command.limits.address_space_mb) == ("a.module", 500)


def test_a_device_that_nodes_would_disturb_is_refused() -> None:
    with pytest.raises(InputError, match="--engine ray: nodes of a cluster may build on any core of this machine"):
        JobHosts(ServiceSettings(data="d", engine="ray"), Placement(((0, 1),), (0, 1)))
