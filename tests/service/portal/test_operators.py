from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kintune.core.hybrid import Hybrid, Region
from kintune.core.report import SubgraphReport
from kintune.runtime.hybrid_package import write_hybrid
from kintune.runtime.manifest import read_manifest
from kintune.service.portal.operators import families_of, manifests_in, operators_of
from tests.support.portal_jobs import LAYERS, executable_of, report_of_layers
from tests.support.reports import example_report


def test_operators_have_the_names_of_the_users_nodes(tmp_path: Path) -> None:
    executable_of("net", tmp_path / "net.kt")
    operators = operators_of(report_of_layers("net", 1.3), manifests_in(tmp_path / "net.kt"))
    assert len(operators) == LAYERS
    assert {each.title for each in operators} >= {"layer1/conv0 + BN + Relu", "layer3/conv3 + BN + Relu"}
    assert [each.total_us for each in operators] == sorted((each.total_us for each in operators), reverse=True)
    assert sum(each.share for each in operators) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("fused_conv2d24_add4_relu", "conv2d + add + relu"),
        ("transpose1", "transpose"),
        ("fused_matmul_add231@1x64", "matmul + add (1x64)"),
        ("fused_batch_matmul_softmax", "batch matmul + softmax"),
    ],
)
def test_without_the_executable_names_are_made_readable(name: str, title: str) -> None:
    report = example_report(subgraphs=(SubgraphReport(name, 1, 1e6, "dense", 4, 10.0),))
    (operator,) = operators_of(report, ())
    assert operator.title == title


@pytest.mark.parametrize("added", ["_prepacked", "_in_place", "_in_place12", "_bf16_0_3", "_bf16_0_in_place"])
def test_kernels_that_were_changed_for_their_neighbours_are_found(added: str, tmp_path: Path) -> None:
    executable_of("net", tmp_path / "net.kt")
    report = report_of_layers("net", 1.3)
    manifest = read_manifest(tmp_path / "net.kt")
    calls = [
        msgspec.structs.replace(call, kernel=f"{subgraph.name}{added}")
        for call, subgraph in zip(manifest.calls[0], report.subgraphs, strict=True)
    ]
    changed = msgspec.structs.replace(manifest, calls=(tuple(calls),))
    titles = {each.title for each in operators_of(report, [changed])}
    assert len(titles) == LAYERS
    assert all(title.startswith("layer") for title in titles)


def test_the_kernels_of_regions_are_found(tmp_path: Path) -> None:
    executable_of("net", tmp_path / "region.kt")
    outer = read_manifest(tmp_path / "region.kt")
    hybrid = Hybrid((Region("Region0", ("a",), ("x",), ("y",)),), {"Scan": 1}, {"scan": "no importer"}, ("1.31.1",))
    changed = {name: getattr(outer, name) for name in outer.__struct_fields__}
    manifest = type(outer)(**{**changed, "hybrid": hybrid, "calls": (), "chosen": {}})
    write_hybrid(tmp_path / "net.kt", manifest, b"graph", [tmp_path / "region.kt"])
    found = manifests_in(tmp_path / "net.kt")
    assert [bool(each.calls) for each in found] == [False, True]
    assert operators_of(report_of_layers("net", 1.3), found)[0].title.startswith("layer")


def test_families_are_by_the_time_they_take() -> None:
    report = example_report(
        subgraphs=(
            SubgraphReport("a", 1, 1e6, "op:dense", 4, 10.0),
            SubgraphReport("b", 2, 1e6, "op:conv2d", 4, 40.0),
            SubgraphReport("c", 1, 1e6, "", 0, 10.0),
        )
    )
    families = families_of(operators_of(report, ()))
    assert [(each.name, round(each.share, 2)) for each in families] == [
        ("convolutions", 0.8), ("matrix products", 0.1), ("not searched", 0.1),
    ]  # fmt: skip
