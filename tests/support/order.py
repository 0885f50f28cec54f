"""In which order files of tests run: long ones first, so that no process is left with one when the others are done."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

__all__ = ["LONG", "long_first"]

LONG = (
    "tests/acceptance/test_service.py",
    "tests/acceptance/test_faults.py",
    "tests/acceptance/test_hybrid.py",
    "tests/models/test_onnx_suite.py",
    "tests/acceptance/test_together.py",
    "tests/acceptance/test_transfer.py",
    "tests/compiler/graph/test_layout.py",
    "tests/kintune_lab/race/test_run.py",
    "tests/measure/rpc/test_board.py",
    "tests/acceptance/test_shapes.py",
    "tests/acceptance/test_remote_machines.py",
    "tests/compiler/programs/test_narrow_attention.py",
    "tests/integrations/stock/test_task_scheduler.py",
    "tests/kintune_lab/tuners/test_tuners.py",
    "tests/acceptance/test_bad_input.py",
    "tests/search/test_knowledge.py",
    "tests/compiler/programs/test_byte_products.py",
    "tests/acceptance/test_endings.py",
    "tests/service/portal/test_calibration.py",
    "tests/kintune_lab/bench/test_smoke.py",
    "tests/service/portal/test_new_job.py",
    "tests/models/converters/test_recurrent.py",
    "tests/models/torch_converters/test_programs.py",
    "tests/compiler/graph/test_plan.py",
    "tests/cli/test_doctor.py",
    "tests/profiling/test_parts.py",
    "tests/service/portal/test_frame.py",
    "tests/compiler/programs/test_panel_sum.py",
    "tests/acceptance/test_toolchain.py",
    "tests/validate/test_mutants.py",
    "tests/models/test_importer.py",
    "tests/records/test_damage.py",
)
"""Files whose tests take longer than 20 seconds together, the longest first."""

_PLACES = {name: place for place, name in enumerate(LONG)}


def long_first(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of long files first; tests of one file and files that are not long keep their order."""
    return sorted(items, key=lambda item: _PLACES.get(item.nodeid.partition("::")[0], len(LONG)))
