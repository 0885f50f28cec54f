from __future__ import annotations

import re
from itertools import pairwise

from kintune.service.portal.charts import Curve, Line, curves, thin


def numbers(markup: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, markup)]


def test_nothing_is_drawn_of_nothing() -> None:
    assert curves([], []) == ""
    assert curves([Curve("net", [])], [Line("onnxruntime", 2.0)]) == ""


def test_other_runtimes_and_the_target_are_lines_across() -> None:
    drawn = curves([Curve("net", [(0.0, 9.0), (5.0, 3.0)])], [Line("onnxruntime", 8.0), Line("target", 5.0)])
    for words in ("onnxruntime 8.00 ms", "target 5.00 ms", "Kintune 3.00 ms"):
        assert words in drawn
    assert ">now<" not in drawn


def test_a_search_that_goes_on_has_a_marker_for_now() -> None:
    assert ">now<" in curves([Curve("net", [(0.0, 9.0)])], [], now=12.0)


def test_names_are_text_and_nothing_else() -> None:
    drawn = curves([Curve("<script>", [(0.0, 9.0)]), Curve("b", [(0.0, 9.0)])], [Line('"&', 3.0)])
    assert "<script>" not in drawn
    assert "&lt;script&gt;" in drawn


def test_labels_do_not_cover_each_other() -> None:
    lines = [Line(name, 5.0) for name in ("onnxruntime", "openvino", "target")]
    drawn = curves([Curve("net", [(0.0, 5.0)])], lines)
    places = sorted(numbers(drawn.partition('class="only-narrow"')[0], r'<text x="734" y="([\d.]+)"'))
    assert len(places) == 4
    assert all(after - before > 14.9 for before, after in pairwise(places))


def test_a_long_curve_is_thinned_to_what_can_be_seen() -> None:
    points = [(float(second), 1000.0 / (1 + second)) for second in range(20_000)]
    kept = thin(points, 240)
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert len(kept) <= 242
    assert kept == sorted(kept)
    assert len(curves([Curve("net", points)], [])) < 120_000


def test_a_short_curve_is_kept_as_it_is() -> None:
    points = [(0.0, 3.0), (0.0, 2.0), (9.0, 1.0)]
    assert thin(points) == points
