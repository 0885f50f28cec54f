"""Finds the parts of a compiled network that have no fast kernel: they take far longer than in onnxruntime, or than
their arithmetic explains.

A network whose single run of the check is out of proportion is profiled, with onnxruntime beside it where that runs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from kintune.core.model import ModelRef
from kintune.core.profile import IN_ONNXRUNTIME, ComparedGroup, Profile, ProfiledCall
from kintune.core.stage_requests import ValidationContext, ValidationItem
from kintune.core.stage_results import SlowPart, ValidationResult
from kintune.core.uncertainty import describe_ms
from kintune.errors import EngineError, KintuneError
from kintune.models.graph_file import open_graph
from kintune.models.onnx_nodes import describe_node, nodes
from kintune.models.ref import ONNX
from kintune.profiling.collect import profile_executable
from kintune.profiling.timing import ProfileRequest
from kintune.validate.validation import TUNED, located_item, validate

__all__ = ["find_slow_parts", "is_out_of_proportion", "validate_with_slow_parts"]

_log = logging.getLogger(__name__)

_TWICE = 2.0
_SUSPECT = 1.5  # times the single run of onnxruntime, which is not optimised there
_SUSPECT_MS = 5.0
_LONG_MS = 20.0  # a run that is judged by its arithmetic
_SLOW_GFLOPS = 1.5  # of each thread: what loops reach that use no vectors
_SLOW_GBYTES = 1.0  # a second, of each thread
_EXPLAINED = 0.5  # of what a network takes too long: the least that its parts explain where these alone are slow
_SHARE, _LEAST_SHARE = 0.2, 0.05  # of the run that slow parts take too long together, and each
_PRODUCTS = ("Conv", "MatMul", "Gemm", "Einsum", "conv", "mm", "matmul", "linear")
_FEW, _ONE_BY_ONE_MS = 3, 1000.0

ProfileIt = Callable[[ProfileRequest], Profile]


def validate_with_slow_parts(context: bytes, payload: bytes, board: str = "") -> bytes:
    """Handles an item as `validate` does; with `find_slow`, the answer has slow parts of a right network as well."""
    answer = validate(context, payload, board)
    item = msgspec.msgpack.decode(payload, type=ValidationItem)
    if board or not item.find_slow:
        return answer
    conditions = msgspec.msgpack.decode(context, type=ValidationContext)
    result = msgspec.msgpack.decode(answer, type=ValidationResult)
    if result.disagreement or (result.doubtful and item.may_hand_over):  # it is not handed out, however quick it is
        return answer
    slow = find_slow_parts(conditions, located_item(item), result.once_ms)
    return msgspec.msgpack.encode(msgspec.structs.replace(result, slow=slow))


def is_out_of_proportion(once_ms: Mapping[str, float], flops: float, threads: int) -> bool:
    """Return whether a single run of the tuned network is too long, for its FLOPs or beside the other runs.

    `once_ms` has the milliseconds of each by name.
    """
    ours = once_ms.get(TUNED, 0.0)
    theirs = min((ms for name, ms in once_ms.items() if name != TUNED), default=None)
    if theirs is not None and ours > _SUSPECT * theirs and ours - theirs > _SUSPECT_MS:
        return True
    return ours > _LONG_MS and flops / 1e6 < _SLOW_GFLOPS * threads * ours


def find_slow_parts(
    conditions: ValidationContext,
    item: ValidationItem,
    once_ms: Mapping[str, float],
    profile: ProfileIt = lambda request: profile_executable(request, lambda *_: None),
) -> tuple[SlowPart, ...]:
    """Return the slow parts of an executable, the slowest first; none where its single run is in proportion.

    Where onnxruntime runs the model, a part is slow that takes more than twice as long as there, and a fifth of the run
    too long.  The whole network is a part, of node "*", where it takes twice as long and its parts do not explain that.
    """
    if not is_out_of_proportion(once_ms, item.flops, conditions.threads):
        return ()
    is_long, model = once_ms[TUNED] > _ONE_BY_ONE_MS, None
    if item.onnx is not None:
        model = ModelRef(ONNX, item.onnx, Path(item.onnx).stem, constants=item.constants, own=True)
    request = ProfileRequest(
        item.tuned,
        next(iter(item.inputs), None),
        model,
        conditions.threads,
        runs=1 if is_long else _FEW,
        rounds=1 if is_long else _FEW,
    )
    try:
        found = profile(request)
        if is_long:  # of two single runs, the one that other work on the machine has disturbed less
            found = min(found, profile(request), key=lambda each: each.run_ms)
        names = {} if item.onnx is None else _names(Path(item.onnx))
    except (KintuneError, EngineError) as error:
        _log.warning(f"the network takes long, and could not be profiled: {error}")
        return ()
    return tuple(sorted(_slow(found, names), key=lambda part: -part.us))


def _slow(profile: Profile, names: Mapping[tuple[str, str], str]) -> list[SlowPart]:
    if profile.onnxruntime is None:
        return _naive(profile, names)
    calls = {call.place: call for call in profile.calls}
    slower = [group for group in profile.onnxruntime.groups if group.us > _TWICE * group.onnxruntime_us]
    lost_us = [group.us - group.onnxruntime_us for group in slower]
    slow = [
        part
        for group, is_much in zip(slower, _are_much(lost_us, profile), strict=True)
        if is_much and (part := _of_group(group, [calls[place] for place in group.calls], names)).nodes
    ]
    theirs_ms = profile.onnxruntime.run_ms
    lost_ms = profile.run_ms - theirs_ms
    explained_ms = sum(part.us - (part.onnxruntime_us or 0.0) for part in slow) / 1e3
    if profile.run_ms > _TWICE * theirs_ms and lost_ms > _SUSPECT_MS and explained_ms < _EXPLAINED * lost_ms:
        slowest = max(profile.calls, key=lambda call: call.us)
        title = f"the whole network ({slowest.title}: {describe_ms(slowest.us / 1e3)})"
        return [SlowPart(("*",), title, profile.run_ms * 1e3, theirs_ms * 1e3)]
    said = {node for part in slow for node in part.nodes}
    return slow + [part for part in _naive(profile, names) if not said.intersection(part.nodes)]


def _are_much(us: Sequence[float], profile: Profile) -> list[bool]:
    """Which of these times are much of the run: none, unless those which are not small are so together."""
    run_us = profile.run_ms * 1e3
    counted = [each > max(_LEAST_SHARE * run_us, 1e3) for each in us]
    together = sum(each for each, counts in zip(us, counted, strict=True) if counts) > _SHARE * run_us
    return [counts and together for counts in counted]


def _naive(profile: Profile, names: Mapping[tuple[str, str], str]) -> list[SlowPart]:
    """The products of matrices that take much of the run, and as long as loops without vectors would.

    Of many that are small the slowest are named.
    """
    naive = sorted((call for call in profile.calls if _is_naive(call)), key=lambda call: -call.us)
    are_much = _are_much([call.us for call in naive], profile)
    if not any(are_much) and sum(call.us for call in naive) > _SHARE * profile.run_ms * 1e3:
        are_much[:_FEW] = [True] * _FEW
    return [_part(call, None, names) for call, is_much in zip(naive, are_much, strict=False) if is_much]


def _is_naive(call: ProfiledCall) -> bool:
    is_product = any(part in node.op for node in call.nodes for part in _PRODUCTS) and not call.inserted
    slowest = call.gflops < _SLOW_GFLOPS * call.threads and call.gbytes_per_s < _SLOW_GBYTES * call.threads
    return is_product and call.where != IN_ONNXRUNTIME and call.gflops > 0 and slowest


def _of_group(group: ComparedGroup, calls: Sequence[ProfiledCall], names: Mapping[tuple[str, str], str]) -> SlowPart:
    """The part of the calls of a group that Kintune runs, named after the slowest."""
    own = [call for call in calls if call.where != IN_ONNXRUNTIME]
    if not own:
        return SlowPart((), "", 0.0)
    slowest = max(own, key=lambda call: call.us)
    part = _part(slowest, group.onnxruntime_us, names)
    nodes = tuple(dict.fromkeys(name for call in own for name in _part(call, None, names).nodes))
    return msgspec.structs.replace(part, nodes=nodes, us=group.us)


def _part(call: ProfiledCall, onnxruntime_us: float | None, names: Mapping[tuple[str, str], str]) -> SlowPart:
    nodes = tuple(names.get((node.name, node.op), f"{node.op} '{node.name}'") for node in call.nodes)
    return SlowPart(nodes, call.title, call.us, onnxruntime_us, call.gflops)


def _names(path: Path) -> dict[tuple[str, str], str]:
    """How messages name each node of a file, by the name and the operator that profiles have."""
    found = {}
    for node in nodes(open_graph(path, own=True).graph):
        found[node.name or next(filter(None, node.output), ""), node.op_type] = describe_node(node)
    return found
