"""In which order files of tests run: long ones first, so that no process is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

__all__ = ["LONG", "long_first"]

LONG = (
    "tests/acceptance/test_service.py",
    "tests/models/test_onnx_suite.py",
    "tests/acceptance/test_hybrid.py",
    "tests/validate/test_validation.py",
    "tests/compiler/programs/test_sums.py",
    "tests/compiler/programs/test_narrow_attention.py",
    "tests/models/torch_converters/test_programs.py",
    "tests/kintune_lab/bench/test_smoke.py",
    "tests/kintune_lab/race/test_run.py",
    "tests/measure/rpc/test_board.py",
    "tests/acceptance/test_remote_machines.py",
    "tests/service/portal/test_frame.py",
    "tests/service/portal/test_new_job.py",
    "tests/models/converters/test_recurrent.py",
    "tests/models/torch_converters/test_gamma.py",
    "tests/workers/test_device_worker.py",
    "tests/acceptance/test_bad_input.py",
    "tests/tuning/front/test_journal.py",
    "tests/compiler/programs/test_winograd.py",
    "tests/integrations/stock/test_task_scheduler.py",
    "tests/profiling/test_parts.py",
    "tests/tuning/front/test_journal_knowledge.py",
    "tests/compiler/graph/test_tuned_lookups.py",
    "tests/compiler/graph/test_kept_tensors.py",
    "tests/compiler/graph/test_assemble.py",
    "tests/acceptance/test_endings.py",
    "tests/models/test_importer.py",
    "tests/workers/engine/test_local_failures.py",
    "tests/kintune_lab/tuners/test_tuners.py",
    "tests/tuning/job/test_job_baselines.py",
)
"""Files whose tests take longer than 20 seconds together, the longest first."""

_PLACES = {name: place for place, name in enumerate(LONG)}


def long_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of long files first; tests of one file and files that are not long keep their order."""
    return sorted(items, key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(LONG)))
