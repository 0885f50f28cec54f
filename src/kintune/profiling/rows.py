"""The rows of a profile: kernel calls with what bounds them, their titles, and onnxruntime's nodes beside them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from kintune.core.device import Peak
from kintune.core.execution_plan import ExecutionPlan, KernelCall
from kintune.core.kernel_call import CallRecord, common_folder, title_of
from kintune.core.profile import IN_ONNXRUNTIME, ComparedGroup, NodeProfile, OnnxProfile, ProfiledCall
from kintune.errors import InputError
from kintune.profiling.limits import bound_of
from kintune.profiling.timing import Times
from kintune.runtime.package import Manifest

__all__ = ["finish", "kernel_rows", "records_of", "stand_beside"]


def records_of(manifest: Manifest, number: int) -> dict[int, CallRecord]:
    """What each call of a plan computes, by its place."""
    return {record.place: record for record in manifest.calls[number]} if manifest.calls else {}


def kernel_rows(
    plan: ExecutionPlan, records: Mapping[int, CallRecord], times: Mapping[int, float], threads: int, peak: Peak | None
) -> list[ProfiledCall]:
    """The calls that ran, in the order of the plan, without their shares; `times` are microseconds by place.

    Raises:
        InputError: the plan calls no kernel at one of the places.
    """
    made = []
    for place, us in times.items():
        operation = plan.operations[place]
        if not isinstance(operation, KernelCall):
            raise InputError(f"the plan calls no kernel at {place}: the file changed while it was profiled")
        record = records.get(place) or CallRecord(place=place, kernel=operation.kernel)
        used = min(operation.threads or threads, threads)
        limit, least_us, reached = bound_of(record, us, used, peak)
        made.append(
            ProfiledCall(
                place=place,
                kernel=record.kernel,
                title=title_of(record),
                nodes=record.nodes,
                operators=record.operators,
                inserted=record.inserted,
                threads=used,
                precision=record.precision,
                us=us,
                gflops=record.flops / us / 1e3 if us else 0.0,
                gbytes_per_s=record.nbytes / us / 1e3 if us else 0.0,
                limit=limit,
                least_us=least_us,
                reached=reached,
            )
        )
    return made


def finish(calls: Sequence[ProfiledCall]) -> tuple[tuple[ProfiledCall, ...], str]:
    """The calls with their shares and final titles, and what the names of all nodes begin with."""
    total = sum(call.us for call in calls)
    return _titled([msgspec.structs.replace(call, share=call.us / total if total else 0.0) for call in calls])


def _titled(calls: Sequence[ProfiledCall]) -> tuple[tuple[ProfiledCall, ...], str]:
    """The calls with titles that tell them apart where their operators do, and without the prefix of all names."""
    prefix = common_folder({node.name for call in calls for node in call.nodes})
    titles = [call.title for call in calls]
    done = []
    for call in calls:
        title = call.title
        if titles.count(title) > 1 and call.operators and not call.inserted and call.where != IN_ONNXRUNTIME:
            title = f"{title}: {' + '.join(call.operators)}"
        done.append(msgspec.structs.replace(call, title=title.replace(prefix, "") if prefix else title))
    return tuple(done), prefix


def stand_beside(
    times: Times, groups: Sequence[ComparedGroup], calls: tuple[ProfiledCall, ...]
) -> tuple[OnnxProfile, tuple[ProfiledCall, ...]]:
    """onnxruntime's times, and the calls with the numbers of their groups and the times of onnxruntime's nodes.

    Raises:
        InputError: onnxruntime was not profiled.
    """
    if times.nodes is None:
        raise InputError("onnxruntime was not profiled")
    group_of_call = {place: number for number, group in enumerate(groups) for place in group.calls}
    group_of_node = {node: number for number, group in enumerate(groups) for node in group.nodes}
    first = min((node.start_us for node in times.nodes.nodes), default=0.0)
    nodes = tuple(
        NodeProfile(node.name, node.op, node.us, node.start_us - first, group_of_node.get(position, -1))
        for position, node in enumerate(times.nodes.nodes)
    )
    told = []
    for call in calls:
        number = group_of_call.get(call.place, -1)
        alone = number >= 0 and len(groups[number].calls) == 1
        theirs = groups[number].onnxruntime_us if alone else None
        told.append(msgspec.structs.replace(call, group=number, onnxruntime_us=theirs))
    onnx = OnnxProfile(
        version=times.nodes.version,
        run_ms=statistics.median(times.onnx_ms),
        nodes_us=sum(node.us for node in nodes),
        matched_us=sum(node.us for node in nodes if node.group >= 0),
        nodes=nodes,
        groups=tuple(groups),
    )
    return onnx, tuple(told)
