from __future__ import annotations

import platform
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kintune.core.measurement_protocol import FLUSHED
from kintune.core.stage_results import StageName
from kintune.errors import InputError, JobFailed
from kintune.records import RunState, Store
from kintune.scheduler.resources import Device, Host
from kintune.service.access import Scope, Visitor
from kintune.service.blob_store import BlobStore
from kintune.service.database import open_database
from kintune.service.job_repository import Job, JobRepository
from kintune.service.job_request import JobRequest
from kintune.service.job_status import JobStatus
from kintune.service.machines import DeviceTypes
from kintune.service.model_store import INPUTS, ModelStore
from kintune.service.orchestrator import run_factory as intake_module
from kintune.service.orchestrator.run_factory import JobHosts, RunFactory
from kintune.service.settings import ServiceSettings
from kintune.service.users import Users
from kintune.tuning.front.placement import HOST, CorePlacement, MeasurementSite
from kintune.tuning.front.request import TuneRequest
from kintune.workers.engine.process import Anywhere, Command
from tests.support.boards import board_about
from tests.support.reports import example_report

PI = board_about("Cortex-A76")

OWN = board_about("this machine", threads=2)


class FakeTuningRun:
    """Keeps what a run was asked for."""

    def __init__(self, request: TuneRequest, store: Store, site: MeasurementSite, owner: str, details: str) -> None:
        self.request, self.site, self.owner = request, site, owner
        assert "/" not in details  # users are shown no path of the service


class FactoryCase:
    """A run factory over a real database, and somebody who submits jobs."""

    def __init__(self, directory: Path, store: Store) -> None:
        self.database = open_database(str(directory / "service.sqlite"))
        library, content = ModelStore(self.database), BlobStore(directory / "content")
        user = Users(self.database).add_user("anna", 1.0)
        self.anna = Visitor(user.id, "anna", Scope.SUBMIT, 1)
        self.library, self.content = library, content
        self.model = library.add(user.id, "net.onnx", content.put_bytes(b"a model"), 7, 1.0, None).id
        self.types = DeviceTypes(self.database)
        settings, place = ServiceSettings(data=str(directory)), CorePlacement(((0, 1),), (0, 1))
        self.store = store
        self.factory = RunFactory(settings, library, content, store, place, JobHosts(settings, place), OWN, self.types)

    def job(self, device: str, **wanted: Any) -> Job:
        request = JobRequest(device=device, minutes=1.0, **wanted)
        return JobRepository(self.database).submit(self.anna, self.model, request, 2.0)[0]

    def tuning_run(self, device: str, usable: int = 0, **wanted: Any) -> tuple[Any, FakeTuningRun]:
        about, tuning_run = self.factory.tuning_run(self.job(device, **wanted), lambda type: usable)
        assert isinstance(tuning_run, FakeTuningRun)
        return about, tuning_run

    def close(self) -> None:
        self.database.close()


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(intake_module, "TuningRun", FakeTuningRun)
    with Store.open(":memory:") as store, closing(FactoryCase(tmp_path, store)) as made:
        yield made


def test_a_job_for_this_machine_s_own_device(case: FactoryCase) -> None:
    about, tuning_run = case.tuning_run("local-cpu")
    assert about is OWN
    assert (tuning_run.site.device, tuning_run.site.threads, tuning_run.site.shared) == ("cpu", 2, True)
    assert (tuning_run.request.target, tuning_run.request.device) == ("native", "cpu")
    assert tuning_run.request.options.keep_denormals is False
    assert case.tuning_run("local-cpu", keep_denormals=True)[1].request.options.keep_denormals is True


@pytest.mark.needs("aarch64-linker")
def test_a_job_for_devices_elsewhere_is_compiled_for_what_those_are(case: FactoryCase) -> None:
    case.types.put("pi5", "board-1", PI, 1.0)
    about, tuning_run = case.tuning_run("pi5", usable=3)
    assert about == PI
    assert tuning_run.site == MeasurementSite("pi5", 3, 4, "Cortex-A76")
    assert (tuning_run.request.target, tuning_run.request.device) == (PI.device_type.target, "pi5")


@pytest.mark.needs("aarch64-linker")
def test_a_type_of_which_no_device_is_there_now_is_waited_for(case: FactoryCase) -> None:
    case.types.put("pi5", "board-1", PI, 1.0)
    assert case.tuning_run("pi5", usable=0)[1].site.count == 1


@pytest.mark.parametrize(
    ("device", "usable", "is_away"), [("local-cpu", 0, False), ("pi5", 0, True), ("pi5", 1, False), ("pi6", 0, False)]
)
def test_devices_elsewhere_may_be_away(case: FactoryCase, device: str, usable: int, is_away: bool) -> None:
    case.types.put("pi5", "board-1", PI, 1.0)
    assert case.factory.is_away(device, lambda type: usable) is is_away


def test_a_type_that_nobody_has_brought(case: FactoryCase) -> None:
    case.types.put("pi5", "board-1", msgspec.structs.replace(PI), 1.0)
    with pytest.raises(InputError, match=r"no device of type 'pi6' .*; there is 'local-cpu', 'pi5'"):
        case.tuning_run("pi6")


def test_inputs_to_quantise_with_lie_in_the_working_directory(case: FactoryCase) -> None:
    file = case.content.put_bytes(b"arrays")
    inputs = case.library.add(case.anna.user, "first.npz", file, 6, 1.0, None, INPUTS).id
    _, tuning_run = case.tuning_run("local-cpu", precision="int8", calibrate=(inputs,))
    (path,) = tuning_run.request.calibration
    assert Path(path).name == "inputs0-first.npz"
    assert Path(path).parent == Path(tuning_run.request.output).parent
    assert Path(path).read_bytes() == b"arrays"
    model = case.content.put_bytes(b"a model")
    assert tuning_run.request.digests == {tuning_run.request.model.source: model, path: file}


def test_inputs_that_are_gone_are_named(case: FactoryCase) -> None:
    inputs = case.library.add(case.anna.user, "first.npz", "0" * 64, 6, 1.0, None, INPUTS).id
    with pytest.raises(InputError, match=f"the set of inputs {inputs} is gone; upload it again"):
        case.tuning_run("local-cpu", precision="int8", calibrate=(inputs,))


def run_of(case: FactoryCase, state: RunState, output: Path) -> Job:
    """A job whose run has come to this state, and was to write there."""
    job = msgspec.structs.replace(case.job("local-cpu"), run_id="r1", state=JobStatus.TUNING)
    case.store.runs.create("r1", key="k", model_name="net")
    summary = msgspec.json.encode(example_report(output=str(output))) if state is RunState.FINISHED else None
    case.store.runs.update("r1", state=state, summary=summary)
    return job


def test_what_came_of_a_run_that_was_over_is_found(case: FactoryCase, tmp_path: Path) -> None:
    (tmp_path / "net.kt").write_bytes(b"program")
    found = case.factory.came_of(run_of(case, RunState.FINISHED, tmp_path / "net.kt"))
    assert found is not None
    assert found.output == str(tmp_path / "net.kt")


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.RUNNING, RunState.INTERRUPTED])
def test_of_a_run_that_is_not_over_or_has_left_nothing_nothing_has_come(
    case: FactoryCase, tmp_path: Path, state: RunState
) -> None:
    assert case.factory.came_of(case.job("local-cpu")) is None
    assert case.factory.came_of(run_of(case, state, tmp_path / "gone.kt")) is None
    replaced = msgspec.structs.replace(case.job("local-cpu"), run_id="of the records before", state=JobStatus.TUNING)
    assert case.factory.came_of(replaced) is None


def test_a_run_that_has_failed_is_said_to_have(case: FactoryCase, tmp_path: Path) -> None:
    with pytest.raises(JobFailed, match="its run has failed"):
        case.factory.came_of(run_of(case, RunState.FAILED, tmp_path / "net.kt"))


ALONE = CorePlacement(((3,),), (0, 1, 2))


def test_jobs_live_with_the_orchestrator() -> None:
    job_hosts = JobHosts(ServiceSettings(data="d", jobs_at_once=2), CorePlacement(((0, 1, 2, 3),), (0, 1, 2, 3)))
    assert job_hosts.home == HOST
    assert job_hosts.cores == 2
    assert [type(each) for each in job_hosts.resources()] == [Host, Device]
    assert isinstance(job_hosts.command("a.module"), Command)


def test_jobs_live_on_the_nodes_of_a_cluster() -> None:
    job_hosts = JobHosts(ServiceSettings(data="d", engine="ray", cores_a_job=4), ALONE)
    assert job_hosts.home is None
    assert job_hosts.cores == 4
    (device,) = job_hosts.resources()
    assert isinstance(device, Device)
    command = job_hosts.command("a.module", 500)
    assert isinstance(command, Anywhere)
    assert (command.module, command.limits.address_space_mb) == ("a.module", 500)


def test_a_device_that_nodes_would_disturb_is_refused() -> None:
    with pytest.raises(InputError, match="--engine ray: nodes of a cluster may build on any core of this machine"):
        JobHosts(ServiceSettings(data="d", engine="ray"), CorePlacement(((0, 1),), (0, 1)))


def test_a_target_may_be_a_share_of_what_is_timed_beside_the_job(case: FactoryCase) -> None:
    options = case.tuning_run("local-cpu", until="onnxruntime*0.8")[1].request.options
    assert (options.until, options.compare) == ("onnxruntime*0.8", ("onnxruntime",))


def test_where_nothing_else_is_timed_a_share_of_it_is_refused(case: FactoryCase) -> None:
    kind = msgspec.structs.replace(PI.device_type, protocol=f"2-cold-{FLUSHED}")
    machine = msgspec.structs.replace(PI.machine, architecture=platform.machine())
    case.types.put("pi5", "board-1", msgspec.structs.replace(PI, device_type=kind, machine=machine), 1.0)
    with pytest.raises(InputError, match="other runtimes are not timed on 'pi5'; give milliseconds"):
        case.tuning_run("pi5", until="onnxruntime*0.8")
    assert case.tuning_run("pi5", until="untuned*0.1")[1].request.options.until == "untuned*0.1"


def test_inputs_with_long_names_in_any_alphabet(case: FactoryCase) -> None:
    content = case.content.put_bytes(b"inputs")
    inputs = case.library.add(case.anna.user, "\u6a21" * 200, content, 6, 1.0, None, INPUTS).id
    _, tuning_run = case.tuning_run("local-cpu", precision="int8", calibrate=(inputs,))
    (path,) = tuning_run.request.calibration
    assert Path(path).read_bytes() == b"inputs"


def test_directories_of_jobs_that_are_over_are_removed(case: FactoryCase, tmp_path: Path) -> None:
    job = case.job("local-cpu")
    case.factory.tuning_run(job, lambda type: 0)
    work = ServiceSettings(data=str(tmp_path)).work
    (work / "gone").mkdir()
    case.factory.clean_up_all_but([job])
    assert [left.name for left in work.iterdir()] == [job.id]


def test_a_report_of_another_version_is_no_result(case: FactoryCase, tmp_path: Path) -> None:
    job = run_of(case, RunState.FINISHED, tmp_path / "net.kt")
    (tmp_path / "net.kt").write_bytes(b"program")
    case.store.runs.update("r1", state=RunState.FINISHED, summary=b'{"schema_version": 0}')
    assert case.factory.came_of(job) is None


def test_a_job_is_compared_on_inputs_of_its_user_within_tolerances(case: FactoryCase) -> None:
    files = [case.content.put_bytes(text) for text in (b"one", b"two")]
    ids = [
        case.library.add(case.anna.user, f"{name}.npz", file, 3, 1.0, None, INPUTS).id
        for name, file in zip("ab", files, strict=True)
    ]
    _, tuning_run = case.tuning_run("local-cpu", rtol=0.25, atol=0.5, inputs=tuple(ids))
    request = tuning_run.request
    assert (request.options.rtol, request.options.atol, request.calibration) == (0.25, 0.5, ())
    assert [Path(path).name for path in request.inputs] == ["compared0-a.npz", "compared1-b.npz"]
    assert [Path(path).read_bytes() for path in request.inputs] == [b"one", b"two"]


@pytest.mark.parametrize(
    ("minutes", "limit_s"),
    [(0.2, 120.0), (5.0, 300.0), (30.0, 600.0), (None, 120.0)],
    ids=["least", "own", "most", "-"],
)
def test_a_check_may_take_as_long_as_the_job_within_the_limits_of_the_service(
    case: FactoryCase, minutes: float | None, limit_s: float
) -> None:
    request = JobRequest(minutes=minutes)
    limits = case.factory.limits(JobRepository(case.database).submit(case.anna, case.model, request, 2.0)[0])
    assert (limits.check_s, limits.item_s) == (limit_s, limit_s)
    assert {StageName.PREPARE, StageName.DRAFT, StageName.CHECK, StageName.BASELINE} <= set(limits.check_kinds)
    assert not {StageName.SELECT, StageName.PROFILE, StageName.PACKAGE, StageName.PROVE} & set(limits.check_kinds)


@pytest.mark.parametrize(("machine_mb", "slots", "job_mb"), [(24_000, 3, 7_000), (64_000, 1, 56_000), (8_000, 3, 4096)])
def test_the_memory_of_a_job_is_that_of_the_machine_by_slots(
    machine_mb: int, slots: int, job_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kintune.service.orchestrator.run_factory.memory_mb", lambda: machine_mb)
    assert JobHosts(ServiceSettings(data="d", jobs_at_once=slots), ALONE).memory_mb == job_mb
