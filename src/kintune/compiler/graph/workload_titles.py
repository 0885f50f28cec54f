"""Titles of workloads by the user's nodes that they compute, one for each occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kintune.compiler.graph.call_records import called_functions
from kintune.compiler.graph.lower import Lowered
from kintune.core.kernel_call import CallRecord, common_folder, readable, title_of, told_apart

__all__ = ["workload_titles"]


def workload_titles(networks: Sequence[Lowered], names: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """The titles of each workload by its digest, in the order of its occurrences: "layer3/conv2 + BN + Relu".

    The networks must have the origins of their kernels.  A prefix that nearly all names of nodes share is left out.
    `names` has TVM's name of each workload.  The first titles of workloads are distinct; a workload whose nodes are not
    known has no titles.
    """
    prefix = common_folder({node.name for each in networks for origin in each.origins for node in origin.nodes})
    found: dict[str, dict[str, None]] = {digest: {} for digest in names}
    for lowered in networks:
        for number, function in sorted(called_functions(lowered).items()):
            own = found.get(lowered.functions.get(function, ""))
            if own is None or number >= len(lowered.origins) or not lowered.origins[number].nodes:
                continue
            origin = lowered.origins[number]
            record = CallRecord(
                place=number,
                kernel=function,
                nodes=origin.nodes,
                operators=origin.operators,
                inserted=origin.inserted,
            )
            title = title_of(record)
            own[title.replace(prefix, "") if prefix else title] = None
    titles = {digest: tuple(own) for digest, own in found.items()}
    by_operators = told_apart(titles, {digest: readable(name) for digest, name in names.items()})
    return told_apart(by_operators, names)
