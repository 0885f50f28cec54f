"""The operators of a result by the user's nodes: the report says what each takes, the executable what it computes."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kintune.core.kernel_call import CallRecord, common_folder, own_kernel, readable, title_of
from kintune.core.report import RunReport, SubgraphReport
from kintune.core.stage_requests import kernel_name
from kintune.runtime.hybrid_package import region_name
from kintune.runtime.manifest import Manifest, contents_of, read_manifest
from kintune.runtime.stored_zip import reading

__all__ = ["NetworkOperator", "SearchedFamily", "families_of", "manifests_in", "operators_of"]

_NOT_SEARCHED = "not searched"
_FAMILIES = {
    "conv2d": "convolutions",
    "depthwise": "depthwise convolutions",
    "dense": "matrix products",
    "batch_matmul": "batched matrix products",
    "reduction": "reductions",
    "pool": "pooling",
    "softmax": "softmax",
}


class NetworkOperator(NamedTuple):
    """A distinct operator of the network, as one kernel computes it.

    `title` is its first occurrence in the user's words, `titles` are all of them; `us` is one run of it, `total_us` all
    of its runs in a run of the network, `share` that of all operators' (0 to 1).
    """

    title: str
    titles: tuple[str, ...]
    family: str
    precision: str
    occurs: int
    us: float | None
    untuned_us: float | None
    total_us: float
    share: float
    gflops: float | None
    trials: int
    failed: int
    key: str


class SearchedFamily(NamedTuple):
    """Operators that were searched together, the slowest first."""

    name: str
    operators: tuple[NetworkOperator, ...]
    share: float


def manifests_in(path: Path) -> tuple[Manifest, ...]:
    """The manifests that say what kernels compute: that of an executable, and of its regions where it has such.

    Raises:
        InputError: it is no executable, or a damaged one.
    """
    manifest = read_manifest(path)
    if manifest.hybrid is None:
        return (manifest,)
    found = [manifest]
    with reading(path) as archive:
        for number in range(len(manifest.hybrid.regions)):
            with archive.open(region_name(number)) as file, zipfile.ZipFile(file) as region:
                found.append(contents_of(region, path).executable)
    return tuple(found)


def operators_of(report: RunReport, manifests: Sequence[Manifest]) -> tuple[NetworkOperator, ...]:
    """The operators of a result, the slowest first; without manifests they have the compiler's names, made readable."""
    whole = sum(_total_us(each) for each in report.subgraphs)
    names = _Names(manifests)
    found = []
    for each in report.subgraphs:
        titles = each.titles or names.of(each) or (readable(each.name),)
        found.append(
            NetworkOperator(
                title=titles[0],
                titles=titles,
                family=_family(each.family),
                precision=each.precision,
                occurs=each.weight,
                us=each.best_us,
                untuned_us=each.untuned_us,
                total_us=_total_us(each),
                share=_total_us(each) / whole if whole else 0.0,
                gflops=each.flops / each.best_us / 1e3 if each.best_us and each.flops else None,
                trials=each.trials,
                failed=sum(each.failures.values()),
                key=each.workload or each.name,
            )
        )
    return tuple(sorted(found, key=lambda each: -each.total_us))


def families_of(operators: Sequence[NetworkOperator]) -> tuple[SearchedFamily, ...]:
    """Returns the operators by family, the family that takes the most time first."""
    grouped: dict[str, list[NetworkOperator]] = {}
    for each in operators:
        grouped.setdefault(each.family, []).append(each)
    families = [SearchedFamily(name, tuple(own), sum(each.share for each in own)) for name, own in grouped.items()]
    return tuple(sorted(families, key=lambda family: -family.share))


class _Names:
    """The titles of kernels, by name; what the names of nearly all nodes begin with is left out."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self._calls: dict[str, dict[str, CallRecord]] = {}
        self._chosen: dict[str, str] = {}
        nodes: set[str] = set()
        for manifest in manifests:
            self._chosen.update(manifest.chosen)
            for calls in manifest.calls:
                for call in calls:
                    self._calls.setdefault(own_kernel(call.kernel), {}).setdefault(title_of(call), call)
                    nodes.update(node.name for node in call.nodes)
        self._prefix = common_folder(nodes)

    def of(self, subgraph: SubgraphReport) -> tuple[str, ...]:
        """The titles of all kernel calls that compute a subgraph, in order; none where they are not known."""
        own = subgraph.name.partition("@")[0]
        kernels = [own]
        if (candidate := self._chosen.get(subgraph.workload)) is not None:
            kernels.insert(0, kernel_name(candidate))
        for kernel in kernels:
            if calls := self._calls.get(kernel):
                return tuple(self._short(title) for title, call in calls.items() if call.nodes)
        return ()

    def _short(self, title: str) -> str:
        return title.replace(self._prefix, "") if self._prefix else title


def _total_us(subgraph: SubgraphReport) -> float:
    return subgraph.weight * (subgraph.best_us or 0.0)


def _family(key: str) -> str:
    """A family in words."""
    if not key:
        return _NOT_SEARCHED
    kind, _, rest = key.partition(":")
    return _FAMILIES.get(rest or kind, rest or kind)
