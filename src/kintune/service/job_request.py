"""The declarative specification of a job: what a user wants of a model."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec

from kintune.core.config import SharedOptions, refuse_random_sets
from kintune.core.constraints import Section, check_fields, limited, option
from kintune.core.latency_target import FASTEST, parse_target
from kintune.core.model import AnyShape
from kintune.core.narrow_options import check_narrow_options
from kintune.errors import InputError, ShapeError
from kintune.models.combinations import (
    MOST_COMBINATIONS,
    combine_shapes,
    parse_shape,
    plain_shape,
    read_shapes,
    refuse_beside_ranges,
)
from kintune.models.constants import constant_of, constant_values, parse_constant

__all__ = [
    "MOST_MINUTES",
    "MOST_PRIORITY",
    "MOST_SETS",
    "TIMED_BESIDE",
    "TYPE_NAME",
    "JobRequest",
    "check",
    "check_webhook",
    "read_constants",
    "read_shape",
]

MOST_MINUTES = 7 * 24 * 60.0
MOST_PRIORITY = 100.0
TYPE_NAME = re.compile(r"[\w.:+,-]{1,64}")
"""What a type of devices may be called."""

TIMED_BESIDE = ("onnxruntime",)
"""The runtimes that a service times beside the networks of its jobs."""

MOST_SETS = 256
"""Sets of inputs that a model is quantised with, or compared on, at most."""

_MOST_DIMENSIONS, _LARGEST = 16, 1 << 31
_MOST_NUMBERS = 1024  # of a constant


class JobRequest(SharedOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Make a model fast on devices of type `device`.

    It is done when it is estimated to take at most `until`, after `minutes` or `trials`, or when no gain is left;
    without `minutes`, those of the service hold.  `shapes` binds dynamic inputs, each to one shape, in which a text
    such as "1..512" is a range, or to a list of alternatives, which the result runs with; `constants` fixes the values
    of inputs for good: numbers, true or false, or (nested) lists of them.  Of what is scarce, a job of
    `priority` 2 gets twice as much as one of 1.  `webhook` is called when the job is over.  `share` lets others'
    jobs use what this one measures.  Without `search` the model is only compiled, in seconds, from what is known.
    Outputs are compared on the uploaded sets of inputs whose ids are in `inputs`, or on random ones.  For int8 the
    model is quantised with those in `calibrate`.
    """

    minutes: Annotated[float, limited(SharedOptions, "minutes", gt=0, le=MOST_MINUTES)] | None = None
    trials: Annotated[int, limited(SharedOptions, "trials", gt=0, le=1_000_000)] | None = None
    # fmt: off
    device: Annotated[str, option("The type of device to tune for.", Section.TARGET, most=64, told="")] = "local-cpu"
    priority: Annotated[float, option(
        "Priority 2 gets twice as much of a scarce resource as 1.", Section.MODELS, gt=0, le=MOST_PRIORITY,
        hint="2 gets twice as much of a scarce resource as 1", told="",
    )] = 1.0
    shapes: Annotated[dict[str, tuple[int | str | tuple[int | str, ...], ...]], option(
        "Shapes of inputs whose dimensions are dynamic, also with ranges (1..512), or lists; without, chosen ranges.",
        Section.MODEL, flag="--shape", most=64, told="",
    )] = msgspec.field(default_factory=dict)
    constants: Annotated[dict[str, Any], option(
        "Values of inputs that become constants: numbers, true or false, or lists.", Section.MODEL,
        flag="--constant", most=64, label="Constant inputs", hint="One a line; fixed for good", told="",
    )] = msgspec.field(default_factory=dict)
    webhook: Annotated[str, option(
        "A URL that is called when the job ends.", Section.LOGS, metavar="URL", most=2048,
        hint="An address that is called when the job ends", told="",
    )] | None = None
    share: Annotated[bool, option(
        "Let jobs of other users use the measurements of this job.", Section.ACCEPTANCE,
        label="Share the measurements with other users' jobs", told="",
    )] = False
    search: Annotated[bool, option(
        "False: compile from stored measurements; programs are not measured.", Section.OTHER,
        flag="--compile-only", off="Compile in seconds from stored measurements; measure no programs.",
        label="Only compile, measure nothing", told="",
    )] = True
    calibrate: Annotated[tuple[int, ...], option(
        "With precision int8 or auto: the ids of uploaded sets of inputs to quantise the model with.",
        Section.PRECISION, metavar="FILE.npz|DIR", most=MOST_SETS, label="Calibration inputs", told="",
    )] = ()
    inputs: Annotated[tuple[int, ...], option(
        "The ids of uploaded sets of inputs to compare outputs on.", Section.MODEL, flag="--input",
        metavar="FILE.npz|DIR", most=MOST_SETS, label="Inputs to compare outputs on", part=Section.CHECKS.part, told="",
    )] = ()
    # fmt: on

    def has_results_of(self, other: JobRequest) -> bool:
        """Whether results of the other request serve this one, too: only limits, priority and the like differ."""
        return _unlimited(self) == _unlimited(other)

    def combinations(self) -> tuple[dict[str, AnyShape], ...]:
        """The combinations of shapes, at least one.

        Raises:
            ShapeError: as for `combine_shapes`.
        """
        return combine_shapes(read_shapes(self.shapes))


def _unlimited(wanted: JobRequest) -> JobRequest:
    """Returns the request without limits, priority, seed, webhook and sharing; the rest decides what the result is."""
    return msgspec.structs.replace(
        wanted, until=None, minutes=None, trials=None, priority=1.0, seed=0, webhook=None, share=False, search=True
    )


def check(wanted: JobRequest, minutes: float | None = None) -> JobRequest:
    """Checks a specification and returns it; one that names no `minutes` gets these.

    Raises:
        InputError: it is not valid; the line names the field and what it may be.
    """
    if not TYPE_NAME.fullmatch(wanted.device):
        raise InputError(f"device {wanted.device[:64]!r} is not a name of a device type")
    check_fields(wanted)
    for name, shape in wanted.shapes.items():
        if not name or len(name) > 256 or len(shape) > _MOST_DIMENSIONS or not _fits(shape):
            raise InputError(
                f"shapes: {name[:64]!r} must have up to {_MOST_DIMENSIONS} extents of 0 or more, "
                f"or up to {MOST_COMBINATIONS} lists of them"
            )
    if any(isinstance(extent, range) for shape in wanted.combinations()[0].values() for extent in shape):
        refuse_beside_ranges(quantises=bool(wanted.calibrate or wanted.weights), other_shapes=wanted.other_shapes)
    if wanted.other_shapes == "onnxruntime" and not wanted.onnxruntime:
        raise InputError("other_shapes cannot run in onnxruntime where no node may; leave one of the two out")
    check_narrow_options(
        wanted.precision,
        weights=wanted.weights,
        max_error=wanted.max_error,
        calibrated=bool(wanted.calibrate),
        how_to_calibrate="upload some and name them in calibrate",
    )
    for name, ids in (("calibrate", wanted.calibrate), ("inputs", wanted.inputs)):
        if len(ids) > MOST_SETS or len(set(ids)) < len(ids):
            raise InputError(f"{name}: name up to {MOST_SETS} sets of inputs, each once")
    refuse_random_sets(wanted, is_given=bool(wanted.inputs or wanted.calibrate))
    if wanted.until is not None:
        _check_until(wanted.until)
    _check_constants(wanted.constants)
    if wanted.webhook is not None:
        check_webhook(wanted.webhook)
    until = None if wanted.until is None else str(parse_target(wanted.until))
    return msgspec.structs.replace(wanted, minutes=minutes if wanted.minutes is None else wanted.minutes, until=until)


def _fits(shape: tuple[int | str | tuple[int | str, ...], ...]) -> bool:
    """Whether this is one shape, or a list of alternatives."""
    several = [one for one in shape if isinstance(one, tuple)]
    shapes = several if several and len(several) == len(shape) else [shape]
    return all(
        len(one) <= _MOST_DIMENSIONS
        and all(isinstance(extent, str) or (isinstance(extent, int) and 0 <= extent < _LARGEST) for extent in one)
        for one in shapes
    )


def read_constants(text: str) -> dict[str, Any]:
    """Constants as people write them, one a line: `sizes=1,3,8,8`.

    Raises:
        InputError: a line does not read so.
    """
    parsed = [parse_constant(line.strip(), files=False) for line in text.splitlines() if line.strip()]
    return {name: constant_values(constant).tolist() for name, constant in parsed}


def read_shape(name: str, text: str) -> tuple[int | str | tuple[int | str, ...], ...]:
    """The shape of an input as people write it: `1x3x224x224`, with ranges `1x{1..512}`, alternatives `1x{32,64}`.

    Raises:
        InputError: it does not read so.
    """
    try:
        shapes = parse_shape(f"{name}={text.lower().replace(' ', '') or '?'}")[1]
    except ShapeError:
        raise InputError(
            f"the shape of {name} is written as 1x3x224x224; 1x{{32,64}} for several, 1x{{1..512}} for any"
        ) from None
    return plain_shape(shapes)


def _check_constants(constants: Mapping[str, Any]) -> None:
    """Checks constants: they may not name files of the service, nor be so large that they would be kept in one.

    Raises:
        InputError: a constant is not valid.
    """
    for name, value in constants.items():
        if not name or len(name) > 256:
            raise InputError(f"constants: {name[:64]!r} is no name of an input")
        leaves = list(itertools.islice(_leaves(value), _MOST_NUMBERS + 1))
        if len(leaves) > _MOST_NUMBERS:
            raise InputError(f"constants: {name[:64]!r} has more than {_MOST_NUMBERS} numbers; bind it in the file")
        if not all(map(_is_number, leaves)):
            raise InputError(f"constants: {name[:64]!r} must be finite numbers, true or false, or lists of them")
        constant_of(name[:64], value)


def _is_number(leaf: Any) -> bool:
    """Whether this can be kept: a finite number, with 64 bits at most where it is whole."""
    if isinstance(leaf, float):
        return math.isfinite(leaf)
    return isinstance(leaf, int) and -(1 << 63) <= leaf < 1 << 64


def _leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Yields the elements of nested lists; lists deeper than the largest rank of a tensor are yielded as they are."""
    if not isinstance(value, list | tuple) or depth > _MOST_DIMENSIONS:
        yield value
        return
    for item in value:
        yield from _leaves(item, depth + 1)


def _check_until(until: str) -> None:
    try:
        target = parse_target(until)
    except InputError as error:
        why = str(error).partition("; ")[0]
        raise InputError(f"{why}; write milliseconds (8) or a share of another runtime's (onnxruntime*0.8)") from error
    if target.needs_baselines and target.baseline not in (FASTEST, *TIMED_BESIDE):
        raise InputError(f"until {until[:64]!r}: a service compares with {', '.join(TIMED_BESIDE)} alone")


def check_webhook(url: str) -> None:
    """Checks the address of a webhook.

    Raises:
        InputError: it is none that may be called.
    """
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
        _ = parts.port
    except ValueError:
        fine = False
    if not fine or len(url) > 2048 or any(c.isspace() or not c.isprintable() for c in url):
        raise InputError("webhook must be an http or https address without a user name")
