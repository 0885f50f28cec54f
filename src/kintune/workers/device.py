"""Does the stages of a device worker: decodes each item, calls the function that does it, encodes the answer."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol as Shape

import msgspec

from kintune.core.device import NarrowSpeed, Peak
from kintune.core.outcome import Outcome
from kintune.core.stage_requests import ProfileContext, ProfileItem
from kintune.errors import WireError

__all__ = ["DeviceHandler", "DeviceStage", "Profiler"]


class DeviceStage(str, Enum):
    """The kinds of stages that run on a device."""

    PROFILE = "profile"
    CONFIRM = "confirm"
    PROVE = "prove"
    CHECK = "check"
    ERROR = "error"
    BASELINE = "baseline"
    PEAK = "peak"
    NARROW = "narrow"


class Profiler(Shape):
    """What times candidates: `kintune.measure.run.Runner`, or a stand-in for it."""

    def begin(self, context: ProfileContext) -> None:
        """Enter a stage."""

    def profile(self, item: ProfileItem) -> Outcome:
        """Check and time one candidate."""

    def release(self) -> None:
        """Free what is kept from one candidate to the next."""


class DeviceHandler:
    """Does the items of the stages of one device.

    PROFILE and CONFIRM items are answered with outcomes; PROVE, CHECK and ERROR items with proofs.  A BASELINE item is
    answered with the latencies of other runtimes, a PEAK item with the device's peak, a NARROW item with its speeds in
    narrow number formats.

    PROFILE and CONFIRM share their requests and differ in the protocol that the context names.
    """

    def __init__(
        self,
        profiler: Profiler,
        prove: Callable[[bytes, bytes], bytes],
        time_baselines: Callable[[bytes, bytes], bytes],
        peak: Callable[[], Peak],
        set_urgent: Callable[[bool], None] = lambda _urgent: None,
        check: Callable[[], None] = lambda: None,
        narrow: Callable[[], tuple[NarrowSpeed, ...]] = tuple,
    ) -> None:
        """`set_urgent` is called with True when a stage that times candidates begins, with False when another one does.

        `check` is called before candidates are timed; it raises DeviceUnwell when their times would be meaningless.
        """
        self._set_urgent = set_urgent
        self._check = check
        self._narrow = narrow
        self._profiler = profiler
        self._prove = prove
        self._time_baselines = time_baselines
        self._peak = peak
        self._stage: DeviceStage | None = None
        self._context = b""

    def begin(self, kind: str, context: bytes) -> None:
        """Enter a stage; `context` is an encoded `ProfileContext`, a `ValidationContext`, or empty for facts."""
        self._stage = None
        try:
            stage = DeviceStage(kind)
        except ValueError as error:
            raise WireError(f"a device worker was asked for a stage of kind {kind!r}") from error
        timing = stage in (DeviceStage.PROFILE, DeviceStage.CONFIRM)
        self._set_urgent(timing)
        if timing:
            self._check()
            self._profiler.begin(msgspec.msgpack.decode(context, type=ProfileContext))
        else:
            self._profiler.release()
        self._stage, self._context = stage, context

    def item(self, payload: bytes) -> bytes:
        """Do one item of the stage that was begun; the answer is encoded as the stage wants it."""
        match self._stage:
            case DeviceStage.PROFILE | DeviceStage.CONFIRM:
                outcome = self._profiler.profile(msgspec.msgpack.decode(payload, type=ProfileItem))
                return msgspec.msgpack.encode(outcome)
            case DeviceStage.PROVE | DeviceStage.CHECK | DeviceStage.ERROR:
                return self._prove(self._context, payload)
            case DeviceStage.BASELINE:
                return self._time_baselines(self._context, payload)
            case DeviceStage.PEAK:
                return msgspec.msgpack.encode(self._peak())
            case DeviceStage.NARROW:
                return msgspec.msgpack.encode(self._narrow())
            case _:
                raise WireError("a device worker was sent an item before a stage was begun")
