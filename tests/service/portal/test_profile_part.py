"""The profile of a result on the page of its job, as markup."""

from __future__ import annotations

import re

import msgspec

from kintune.service.portal.profile_part import profile_part
from tests.support.profiles import PROFILE, in_parts


def cells(markup: str) -> list[list[str]]:
    """The texts of the cells of each row."""
    rows = re.findall(r"<tr>(.*?)</tr>", markup, re.S)
    return [[re.sub(r"<[^>]*>", " ", cell).strip() for cell in re.findall(r"<td.*?>(.*?)</td>", row)] for row in rows]


def test_a_hybrid_has_nodes_in_onnxruntime_and_its_regions() -> None:
    markup = profile_part(in_parts(), "j1")
    conv, softmax, copy, slower, missing = (row for row in cells(markup) if row)
    assert conv[-1] == "arithmetic 75% (region 1)"
    assert softmax[-1] == "in onnxruntime"
    assert copy[-1] == "copies &gt;100% (region 1)"
    assert slower[0].startswith("region 1 (2 nodes)")
    assert slower[1:] == ["430 us", "84.3%", "2", "420 us", "10.0 us"]
    assert missing[1:] == ["not run", "", "", "", ""]
    assert "relu&lt;2&gt;" in markup


def test_a_network_of_kernels_has_no_regions() -> None:
    assert "regions, as nodes" not in profile_part(PROFILE, "j1")
    assert "regions, as nodes" in profile_part(msgspec.structs.replace(PROFILE, regions=in_parts().regions), "j1")
