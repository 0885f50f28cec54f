from __future__ import annotations

import msgspec
import pytest

from kintune.core.device import Peak
from kintune.core.measurement_protocol import MeasurementProtocol
from kintune.core.outcome import Outcome, Status
from kintune.core.stage_requests import Built, ProfileContext, ProfileItem
from kintune.errors import DeviceUnwell, WireError
from kintune.workers.device import DeviceHandler

CONTEXT = ProfileContext(MeasurementProtocol(threads=1), {})
ITEM = msgspec.msgpack.encode(ProfileItem("w", Built("c")))


class ScriptedProfiler:
    def __init__(self) -> None:
        self.story: list[str] = []

    def begin(self, context: ProfileContext) -> None:
        self.story.append(f"begin with {context.protocol.threads}")

    def profile(self, item: ProfileItem) -> Outcome:
        self.story.append(f"profile {item.workload}")
        return Outcome(Status.OK, (1.0,))

    def release(self) -> None:
        self.story.append("release")


def _baselines(context: bytes, payload: bytes) -> bytes:
    return b"baselines of " + context + payload


def handler(profiler: ScriptedProfiler) -> DeviceHandler:
    return DeviceHandler(profiler, lambda context, payload: context + payload, _baselines, lambda: Peak(1.0, 2.0, 3))


@pytest.mark.parametrize("kind", ["profile", "confirm"])
def test_profile_and_confirm_are_one_thing(kind: str) -> None:
    profiler = ScriptedProfiler()
    device = handler(profiler)
    device.begin(kind, msgspec.msgpack.encode(CONTEXT))
    assert msgspec.msgpack.decode(device.item(ITEM), type=Outcome) == Outcome(Status.OK, (1.0,))
    assert profiler.story == ["begin with 1", "profile w"]


def test_a_proof_is_the_provers_and_finds_the_memory_free() -> None:
    profiler = ScriptedProfiler()
    device = handler(profiler)
    device.begin("prove", b"context ")
    assert device.item(b"payload") == b"context payload"
    assert profiler.story == ["release"]


def test_baselines_are_timed_by_their_own_function_and_find_the_memory_free() -> None:
    profiler = ScriptedProfiler()
    device = handler(profiler)
    device.begin("baseline", b"context ")
    assert device.item(b"payload") == b"baselines of context payload"
    assert profiler.story == ["release"]


def test_only_what_times_candidates_is_urgent() -> None:
    told: list[bool] = []
    device = DeviceHandler(
        ScriptedProfiler(), lambda context, payload: b"", _baselines, lambda: Peak(1.0, 2.0, 3), told.append
    )
    for kind in ("profile", "prove", "confirm", "baseline"):
        device.begin(kind, msgspec.msgpack.encode(CONTEXT))
    assert told == [True, False, True, False]


def test_a_peak_reads_as_a_mapping() -> None:
    device = handler(ScriptedProfiler())
    device.begin("peak", b"")
    assert msgspec.msgpack.decode(device.item(b""), type=Peak) == Peak(1.0, 2.0, 3)


def test_what_cannot_be_begun_leaves_no_stage_behind() -> None:
    device = handler(ScriptedProfiler())
    device.begin("prove", b"")
    with pytest.raises(WireError, match="'build'"):
        device.begin("build", b"")
    with pytest.raises(WireError, match="before a stage"):
        device.item(b"")
    device.begin("prove", b"")
    with pytest.raises(msgspec.DecodeError):
        device.begin("profile", b"not a context")
    with pytest.raises(WireError, match="before a stage"):
        device.item(b"")


def test_an_unwell_device_times_nothing() -> None:
    profiler = ScriptedProfiler()

    def unwell() -> None:
        raise DeviceUnwell("throttled")

    device = DeviceHandler(
        profiler, lambda context, payload: b"proof", _baselines, lambda: Peak(1.0, 2.0, 3), lambda urgent: None, unwell
    )
    for kind in ("profile", "confirm"):
        with pytest.raises(DeviceUnwell, match="throttled"):
            device.begin(kind, msgspec.msgpack.encode(CONTEXT))
        with pytest.raises(WireError, match="before a stage was begun"):
            device.item(ITEM)
    device.begin("prove", b"")
    assert device.item(b"") == b"proof"
    assert profiler.story == ["release"]
