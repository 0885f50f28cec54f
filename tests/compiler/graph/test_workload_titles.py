from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compiler.graph.test_provenance import block, held_by_blocks, imported, target

if TYPE_CHECKING:
    from kintune.compiler.graph.lower import Lowered

pytestmark = pytest.mark.tvm


def lowered(folder: Path, *, known: bool = True) -> Lowered:
    """Three blocks that are alike, in a folder of their own in the graph."""
    from kintune.compiler.graph.lower import lower
    from kintune.compiler.graph.provenance import origins

    nodes = [*block(0, "x", "h"), *block(1, "h", "i"), *block(2, "i", "y")]
    for node in nodes:
        node.name = f"/model/{node.name}"
    model = imported(folder, nodes, held_by_blocks(3), [1, 8, 6, 6], [1, 8, 6, 6])
    found = lower(model.module, target())
    return found._replace(origins=origins(found.trail, model)) if known else found


def test_a_workload_has_a_title_for_every_place(tmp_path: Path) -> None:
    from kintune.compiler.graph.workload_titles import workload_titles

    network = lowered(tmp_path)
    found = workload_titles([network], {each.digest: each.name for each in network.workloads})
    assert set(found) == {each.digest for each in network.workloads}
    (convolutions,) = [titles for titles in found.values() if titles[0].startswith("conv")]
    assert convolutions == ("conv0 + BN + Relu", "conv1 + BN + Relu", "conv2 + BN + Relu")
    assert len({titles[0] for titles in found.values()}) == len(found)


def test_without_origins_no_title_is_known(tmp_path: Path) -> None:
    from kintune.compiler.graph.workload_titles import workload_titles

    network = lowered(tmp_path, known=False)
    found = workload_titles([network], {each.digest: each.name for each in network.workloads})
    assert set(found.values()) == {()}
