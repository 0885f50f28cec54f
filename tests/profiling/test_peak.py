"""The machine's peak comes from a process of its own."""

from __future__ import annotations

import pytest

from kintune.profiling.peak import measure_peak_apart


def test_there_is_none_where_it_cannot_be_measured() -> None:
    assert measure_peak_apart("no target", 1) is None


@pytest.mark.tvm
def test_a_peak_is_measured() -> None:
    from kintune.runtime.target import resolve_target

    peak = measure_peak_apart(resolve_target("native", 1), 1)
    assert peak is not None
    assert peak.threads == 1
    assert peak.gflops > 1
    assert peak.read_gbytes_per_s > 0.1
