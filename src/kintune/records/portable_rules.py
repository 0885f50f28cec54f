"""What must hold between records that come from elsewhere before they are believed."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from kintune.core.candidate import UNTUNED, Axis, Choice, Decision, Location, Sketch, Tile
from kintune.core.measurement_protocol import DeviceType
from kintune.core.outcome import Outcome
from kintune.records.measurements import Measurement

__all__ = ["Rules"]

_DIGEST = re.compile(r"[0-9a-f]{32}")


class Rules:
    """Told of records one after the other, answers what is wrong with each, or nothing ("")."""

    def __init__(self, width_of: Callable[[str], int | None] = lambda _: None) -> None:
        """`width_of` says how many features those of a version have, as far as that is known already."""
        self._width_of = width_of
        self._widths: dict[str, int] = {}
        self._device_types: set[str] = set()
        self._workloads: set[str] = set()
        self._sketches: dict[str, Sketch] = {}

    def device_type(self, device_type: DeviceType) -> str:
        """Any device type may be named from now on."""
        self._device_types.add(device_type.digest)
        return ""

    def workload(self, digest: str) -> str:
        """A workload may be named from now on."""
        self._workloads.add(digest)
        return "" if _DIGEST.fullmatch(digest) else f"{digest!r} is no digest"

    def sketch(self, sketch: Sketch) -> str:
        """A sketch of a known workload may be named from now on."""
        self._sketches[sketch.digest] = sketch
        if not _DIGEST.fullmatch(sketch.digest):
            return f"{sketch.digest!r} is no digest"
        return "" if sketch.workload in self._workloads else f"its workload {sketch.workload} is missing"

    def measurement(self, measurement: Measurement) -> str:
        """It names what is known, its decisions answer its sketch's axes, its times and features can be such."""
        candidate = measurement.candidate
        if measurement.device_type not in self._device_types:
            return f"its device type {measurement.device_type} is missing"
        if candidate.workload not in self._workloads:
            return f"its workload {candidate.workload} is missing"
        if not measurement.compiler:
            return "it names no compiler"
        axes: tuple[Axis, ...] = ()
        if candidate.sketch != UNTUNED:
            sketch = self._sketches.get(candidate.sketch)
            if sketch is None or sketch.workload != candidate.workload:
                return f"its sketch {candidate.sketch} is missing"
            axes = sketch.axes
        if len(axes) != len(candidate.decisions):
            return f"it has {len(candidate.decisions)} decisions for {len(axes)} axes"
        for number, (axis, decision) in enumerate(zip(axes, candidate.decisions, strict=True)):
            if not _answers(axis, decision):
                return f"its decision {number} does not answer its axis"
        outcomes = (measurement.outcome, measurement.confirmed)
        wrong = next((problem for outcome in outcomes if outcome and (problem := _problem(outcome))), "")
        return wrong or self._features(measurement.features, measurement.feature_version)

    def _features(self, features: bytes, version: str) -> str:
        """Models are trained on features of one version as rows of one table."""
        if not features:
            return ""
        if not version or len(features) % 4:
            return f"its {len(features)} bytes of features are no 32-bit floats of a named version"
        if not np.isfinite(np.frombuffer(features, dtype="<f4")).all():
            return "its features are not all finite"
        width = len(features) // 4
        expected = self._widths.setdefault(version, self._width_of(version) or width)
        return "" if width == expected else f"it has {width} features, others of version {version!r} have {expected}"


def _answers(axis: Axis, decision: Decision) -> bool:
    match axis:
        case Tile(extent=extent, parts=parts):
            return len(decision) == parts and min(decision) > 0 and math.prod(decision) == extent
        case Choice(values=values):
            return len(decision) == 1 and 0 <= decision[0] < len(values)
        case Location():
            return len(decision) == 1 and decision[0] >= -2  # inlined


def _problem(outcome: Outcome) -> str:
    if outcome.ok != bool(outcome.times_us):
        return f"it is {outcome.status.value} with {len(outcome.times_us)} times"
    wrong = [time for time in outcome.times_us if not (math.isfinite(time) and time > 0)]
    return f"{wrong[0]} us is no time" if wrong else ""
