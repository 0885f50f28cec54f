from __future__ import annotations

from pathlib import Path

import pytest

from kintune.core.candidate import Candidate
from kintune.core.outcome import Status

pytestmark = pytest.mark.tvm


def test_who_replaces_a_worker_that_took_too_long_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.models.ref import parse_ref
    from kintune_lab.tuners import measurement
    from kintune_lab.tuners.setup import prepare_setup
    from kintune_lab.tuners.turns import StageTimer
    from tests.support.tiny_network import make_tiny_network

    setup = prepare_setup(parse_ref(str(make_tiny_network(tmp_path).onnx)), 1)
    untuned = Candidate.untuned(setup.ready().subgraphs[0].workload)
    bench = measurement.OwnMeasurements(setup, {}, tmp_path / "workers.log", StageTimer())

    def measured() -> Status:
        (outcome,) = bench.measure([untuned], lambda candidate: setup.lowered.workloads[0].module, {})
        return outcome.status

    try:
        assert measured() is Status.OK
        with monkeypatch.context() as impatient:
            impatient.setattr(measurement, "patience_s", lambda seconds, limit_s: 1e-3)
            assert measured() is Status.BUILD_TIMED_OUT
        assert measured() is Status.OK
    finally:
        bench.close()
