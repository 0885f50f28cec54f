"""What goes to stages and comes from them."""

from __future__ import annotations

from kintune.core.stage_requests import Built, workload_of


def test_an_output_is_named_by_its_workload_first() -> None:
    assert [workload_of(name) for name in ("abc", "abc candidate", "abc 1 2")] == ["abc"] * 3


def test_who_only_runs_a_candidate_needs_no_object_file() -> None:
    built = Built("c", b"library", object_file=b"object", precision="bf16")
    assert built.without_object_file() == Built("c", b"library", precision="bf16")
