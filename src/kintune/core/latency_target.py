"""The latency at which a search ends: milliseconds, or a share of what a baseline takes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from kintune.errors import InputError

__all__ = [
    "COMPARED",
    "COMPARED_FLUSHING",
    "COMPARED_NARROW",
    "FASTEST",
    "UNTUNED_NETWORK",
    "LatencyTarget",
    "parse_target",
]

COMPARED = ("onnxruntime", "openvino", "torch")
"""The names of the runtimes that a network is compared with, where they are installed; they compute in fp32."""

COMPARED_NARROW = ("openvino_bf16",)
"""The names of the runtimes that a network is compared with as well, if it may compute in a narrower precision."""

COMPARED_FLUSHING = ("onnxruntime_flushing",)
"""The names of runtimes with denormal numbers flushed to zero, which are compared where that makes them faster."""

FASTEST = "fastest"
"""In place of a runtime's name: the fastest of the runtimes."""

UNTUNED_NETWORK = "untuned"
"""In the place of a runtime's name: the network with its untuned programs."""

_SHARE = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*(\*\s*(?P<factor>\S+))?")
_NAMES = f"{', '.join(COMPARED)}, {FASTEST} and {UNTUNED_NETWORK}"
_HOW = f"write milliseconds (2.5) or a share of what a baseline takes (onnxruntime*0.8); there are {_NAMES}"


class LatencyTarget(msgspec.Struct, frozen=True):
    """`ms` milliseconds, or, where a `baseline` is named, `factor` times what it takes.

    `baseline` is one of `COMPARED`, `FASTEST` or `UNTUNED_NETWORK`; of both kinds only one is set.
    """

    ms: float | None = None
    baseline: str = ""
    factor: float = 1.0

    def __str__(self) -> str:
        """As users write it: `2.5`, `onnxruntime`, `onnxruntime*0.8`."""
        if self.ms is not None:
            return _spelled(self.ms)
        return self.baseline if self.factor == 1.0 else f"{self.baseline}*{_spelled(self.factor)}"

    @property
    def described(self) -> str:
        """The same in words: `2.5 ms`, `0.8 of onnxruntime`."""
        if self.ms is not None:
            return f"{_spelled(self.ms)} ms"
        return self.baseline if self.factor == 1.0 else f"{_spelled(self.factor)} of {self.baseline}"

    @property
    def needs_baselines(self) -> bool:
        """Whether other runtimes must be timed before it is known in milliseconds."""
        return self.baseline not in ("", UNTUNED_NETWORK)

    def milliseconds(self, times_ms: Mapping[str, float]) -> float | None:
        """Return the target in milliseconds, from those that baselines and the untuned network take, by name.

        None if what it names has no finite time among them.
        """
        if self.ms is not None:
            return self.ms
        if self.baseline == FASTEST:
            named = [times_ms[name] for name in (*COMPARED, *COMPARED_NARROW) if name in times_ms]
        else:
            named = [times_ms[self.baseline]] if self.baseline in times_ms else []
        known = [time for time in named if math.isfinite(time)]
        return self.factor * min(known) if known else None


def parse_target(text: str | float) -> LatencyTarget:
    """Return the target that a user has written: `2.5`, `2.5ms`, `openvino` or `onnxruntime*0.8`.

    Raises:
        InputError: it has another form, there is no baseline of that name, or a number is not above 0.
    """
    written = str(text)
    plain = written.strip()
    if (latency := _number(plain.removesuffix("ms"))) is not None:
        return LatencyTarget(ms=_above_0(latency, written, "the latency"))
    share = _SHARE.fullmatch(plain)
    factor = 1.0 if share is None or share["factor"] is None else _number(share["factor"])
    if share is None or factor is None:
        raise InputError(f"until {written!r} cannot be read; {_HOW}")
    name = share["name"].lower()
    if name not in (*COMPARED, *COMPARED_NARROW, FASTEST, UNTUNED_NETWORK):
        raise InputError(f"until {written!r}: there is no baseline {share['name']!r}; {_HOW}")
    return LatencyTarget(baseline=name, factor=_above_0(factor, written, "the factor"))


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _above_0(value: float, written: str, what: str) -> float:
    """Return the value.

    Raises:
        InputError: it is not a finite number above 0.
    """
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"until {written!r}: {what} must be more than 0, and is {value:g}")
    return value


def _spelled(value: float) -> str:
    return f"{value:.12g}"
