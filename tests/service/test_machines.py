from __future__ import annotations

import math

import msgspec
import pytest

from kintune.core.device import DeviceDescription
from kintune.errors import InputError
from kintune.records.database import Database
from kintune.service.access import NotFound, Scope
from kintune.service.machines import DeviceTypes, MachineRegistry, machines_in
from kintune.service.users import Users
from kintune.wire.worker_loop import WIRE_VERSION
from kintune.workers.fleet.messages import FLEET_VERSION, Join, OfferedDevice
from tests.support.boards import board_about

PI = board_about("Cortex-A76", pulse_us=500.0)


class RegistryCase:
    """A registry, and tokens for machines."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.users = Users(database)
        self.registry = MachineRegistry(database, PI.compiler, frozenset({"local-cpu"}))
        self.types = DeviceTypes(database)
        self.operator = self.users.add_user("operator", 0.0)

    def token(self) -> int:
        text = self.users.add_token(self.operator, "", Scope.MACHINE, 0.0, None).text
        number = self.users.visitor(text, 1.0).token
        assert number is not None
        return number


@pytest.fixture
def case(database: Database) -> RegistryCase:
    return RegistryCase(database)


def join(name: str = "board-1", about: DeviceDescription = PI, type: str = "pi5", identity: str = "m1") -> Join:
    device = OfferedDevice("cpu", type, (), msgspec.msgpack.encode(about))
    return Join(name, identity, FLEET_VERSION, WIRE_VERSION, devices=(device,))


def test_the_first_device_of_a_type_says_what_those_are(case: RegistryCase) -> None:
    assert case.registry.admit(case.token(), join(), 1.0) == [PI]
    slower = msgspec.structs.replace(PI, pulse_us=560.0)
    assert case.registry.admit(case.token(), join("board-2", slower), 2.0) == [PI]
    assert case.types.all() == {"pi5": PI}
    one, two = machines_in(case.database)
    assert (one.name, one.joined, one.offer.devices) == ("board-1", 1.0, {"cpu": "pi5"})
    assert two.name == "board-2"


@pytest.mark.parametrize(
    ("about", "problem"),
    [
        (board_about("Neoverse-N1"), "its processor is Neoverse-N1, and that of those Cortex-A76"),
        (board_about("Cortex-A76", threads=2), "its number of threads is 2"),
        (
            msgspec.structs.replace(PI, device_type=msgspec.structs.replace(PI.device_type, target="{}")),
            "its target is {}",
        ),
        (board_about("Cortex-A76", isa=("sve",)), "its instruction set is sve, and that of those none"),
        (board_about("Cortex-A76", pulse_us=800.0), "the reference kernel takes 1.60 times as long on it as on those"),
        (board_about("Cortex-A76", pulse_us=300.0), "the reference kernel takes 0.60 times as long"),
    ],
)
def test_a_device_that_is_not_what_it_calls_itself_stays_out(
    case: RegistryCase, about: DeviceDescription, problem: str
) -> None:
    case.registry.admit(case.token(), join(), 1.0)
    with pytest.raises(InputError, match=rf"device cpu is no 'pi5': .*{problem}.*; name another type"):
        case.registry.admit(case.token(), join("board-2", about), 2.0)
    assert [machine.name for machine in machines_in(case.database)] == ["board-1"]


def test_the_machine_that_defined_a_type_may_turn_out_to_be_faster(case: RegistryCase) -> None:
    """It was throttled or shared when it joined first."""
    token, faster = case.token(), msgspec.structs.replace(PI, pulse_us=200.0)
    case.registry.admit(token, join(), 1.0)
    assert case.registry.admit(token, join(about=faster), 2.0) == [faster]
    assert case.types.all() == {"pi5": faster}
    with pytest.raises(InputError, match=r"the reference kernel takes 2\.50 times as long on it as on those"):
        case.registry.admit(token, join(), 3.0)


def test_a_token_is_one_machines(case: RegistryCase) -> None:
    token = case.token()
    case.registry.admit(token, join(), 1.0)
    case.registry.admit(token, join(), 2.0)  # again: its line was cut
    with pytest.raises(InputError, match="this token belongs to the machine 'board-1', which is another one"):
        case.registry.admit(token, join("board-2", identity="m2"), 3.0)
    with pytest.raises(InputError, match="this token belongs to the machine 'board-1'; join with that name"):
        case.registry.admit(token, join("board-2"), 3.0)


def test_a_name_is_one_tokens_until_that_is_revoked(case: RegistryCase) -> None:
    first, second = case.token(), case.token()
    case.registry.admit(first, join(), 1.0)
    with pytest.raises(InputError, match="there is a machine 'board-1', with another token"):
        case.registry.admit(second, join(identity="m2"), 2.0)
    case.users.revoke(first, 3.0)
    case.registry.admit(second, join(identity="m2"), 4.0)
    (machine,) = machines_in(case.database)
    assert (machine.token, machine.identity) == (second, "m2")


@pytest.mark.parametrize("type", ["", "local-cpu", "a b", "x" * 65, "\x1b[2J"])
def test_names_that_no_type_can_have(case: RegistryCase, type: str) -> None:
    with pytest.raises(InputError, match="its type cannot be called"):
        case.registry.admit(case.token(), join(type=type), 1.0)
    assert case.types.all() == {}


def test_another_compiler_stays_out(case: RegistryCase) -> None:
    old = msgspec.structs.replace(PI, compiler="tvm 0.1")
    with pytest.raises(InputError, match=r"this machine compiles with tvm 0\.1, the service with"):
        case.registry.admit(case.token(), join(about=old), 1.0)


@pytest.mark.parametrize("us", [float("nan"), float("inf"), -1.0])
def test_numbers_that_are_none_stay_out(case: RegistryCase, us: float) -> None:
    with pytest.raises(InputError, match="what it says of itself makes no sense"):
        case.registry.admit(case.token(), join(about=msgspec.structs.replace(PI, pulse_us=us)), 1.0)
    assert case.types.all() == {}


def test_a_type_that_is_forgotten_is_said_anew(case: RegistryCase) -> None:
    token = case.token()
    case.registry.admit(token, join(about=msgspec.structs.replace(PI, pulse_us=5000.0)), 1.0)  # it was busy
    case.types.forget("pi5")
    assert case.registry.admit(token, join(), 2.0) == [PI]
    with pytest.raises(NotFound, match="there is no type of devices 'pi6'"):
        case.types.forget("pi6")


def test_what_is_no_description_stays_out(case: RegistryCase) -> None:
    broken = msgspec.structs.replace(join(), devices=(OfferedDevice("cpu", "pi5", (), b"\xc1"),))
    with pytest.raises(InputError, match="its description is invalid"):
        case.registry.admit(case.token(), broken, 1.0)


def test_a_type_goes_with_the_service_to_another_protocol(case: RegistryCase) -> None:
    case.registry.admit(case.token(), join(), 1.0)
    kind = msgspec.structs.replace(PI.device_type, protocol="3-cold")
    newer = msgspec.structs.replace(PI, device_type=kind, pulse_us=600.0)
    kept = msgspec.structs.replace(newer, pulse_us=PI.pulse_us)
    assert case.registry.admit(case.token(), join("board-2", newer), 2.0) == [kept]
    assert case.types.get("pi5") == kept


def test_a_description_that_no_database_keeps_is_refused(case: RegistryCase) -> None:
    about = msgspec.structs.replace(PI, protocol=msgspec.structs.replace(PI.protocol, max_seconds=math.nan))
    with pytest.raises(InputError, match="what it says of itself makes no sense"):
        case.registry.admit(case.token(), join(about=about), 1.0)
    assert case.types.all() == {}
