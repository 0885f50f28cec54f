"""What is special in panels, prefetches and instructions of sums in bf16; `test_sums` compares what they compute."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kintune.hardware.amx import permit_amx
from kintune.hardware.cpu import host_extensions
from kintune.search.processor import Processor
from kintune.search.sketch_program import precision_of, program_of
from tests.support.products import product
from tests.support.sums import NARROW

pytestmark = pytest.mark.tvm

SAPPHIRE_RAPIDS = {"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 2}
CORTEX_A76 = {"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a76", "num-cores": 2}


def kinds() -> list[str]:
    """The kinds of inner kernels that this CPU can run."""
    has = set(host_extensions() or ())
    found = ["dot"] if has.issuperset({"avx512f", "avx512bf16"}) else []
    return found + (["amx"] if has.issuperset({"amxtile", "amxbf16", "avx512bf16"}) and permit_amx() else [])


@pytest.mark.parametrize(
    ("rows", "columns", "calls"),
    [
        (128, 64, ["4 kt_tdpbf16ps_2x2_ahead_8"]),
        (48, 64, ["1 kt_tdpbf16ps_2x2_ahead_16", "1 kt_tdpbf16ps_1x2_ahead_16"]),
        (32, 64, ["1 kt_tdpbf16ps_2x2_ahead_32"]),
        (1088, 64, ["32 kt_tdpbf16ps_2x2_ahead_1", "2 kt_tdpbf16ps_2x2"]),  # more groups than lines
        (128, 32, ["4 kt_tdpbf16ps_2x2"]),  # there is no next panel
    ],
)
def test_groups_of_rows_ask_for_all_of_the_next_panel(rows: int, columns: int, calls: list[str]) -> None:
    """A step reads 2048 bytes of a panel, 32 lines: so many do the groups ask for together."""
    from kintune.compiler.programs.panel_sum import NarrowPanels

    module = product(rows, columns=columns, reduced=64)
    units, parts, _ = (axis.values for axis in NarrowPanels().axes(module, "amx") or ())
    assert (units[-1], parts[0]) == ((rows // 16,), (1,))
    written = str(NarrowPanels().write(module, "amx", (units[-1], (1,), (1,)))["main"])
    found, extent = [], 1
    for line in map(str.strip, written.splitlines()):
        if loop := re.fullmatch(r"for group in range\(T.int64\((\d+)\)\):", line):
            extent = int(loop[1])
        elif call := re.match(r'T\.call_extern\("int32", "(kt_tdpbf16ps_\dx2\w*)_[0-9a-f]{16}"', line):
            found.append(f"{extent} {call[1]}")
            extent = 1
    assert found == calls


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        (SAPPHIRE_RAPIDS, ["amx"]),
        ({**SAPPHIRE_RAPIDS, "mattr": ["-amx-bf16"]}, ["dot"]),
        ({"kind": "llvm", "mcpu": "znver4", "num-cores": 2}, ["dot"]),
        ({"kind": "llvm", "mcpu": "skylake-avx512", "num-cores": 2}, []),
        ({"kind": "llvm", "mcpu": "core-avx2", "num-cores": 2}, []),
        ({**CORTEX_A76, "mattr": ["+bf16"]}, ["bfdot"]),
        (CORTEX_A76, []),
    ],
)
def test_instructions_are_those_of_the_target(target: dict[str, Any], kind: list[str]) -> None:
    from kintune.compiler.programs.registry import instructions_of
    from kintune.compiler.space.sketches import generate_sketches

    module = product(64, columns=64, reduced=64)
    sketches = generate_sketches("w", module, _target(target), NARROW)
    narrow = [sketch for sketch in sketches if precision_of(sketch) == "bf16"]
    assert [program_of(sketch).partition(":")[2] for sketch in narrow] == kind
    needed = "bf16" if kind == ["bfdot"] else "avx512bf16"
    assert all(needed in instructions_of(program_of(sketch)) for sketch in narrow)
    assert not any(instructions_of(program_of(sketch)) for sketch in sketches if sketch not in narrow)
    plain = generate_sketches("w", module, _target(target))
    assert plain == tuple(sketch for sketch in sketches if sketch not in narrow)
    assert all(precision_of(sketch) == "fp32" and b"precision" not in sketch.trace for sketch in plain)


def test_first_candidates_divide_the_work() -> None:
    """Two threads have the same number of tasks, and no panel is computed for nothing."""
    from kintune.compiler.programs.panel_sum import NarrowPanels

    module = product(128, columns=768, reduced=768)
    program = NarrowPanels()
    for threads in (1, 2):
        machine = Processor(16, 32, threads, (48 << 10, 2 << 20, 64 << 20))
        (units,), (parts,), _ = program.rule(module, "amx", machine)[0]
        tasks = -(-8 // units) * parts
        assert tasks % threads == 0


def _target(target: dict[str, Any]) -> Any:
    import tvm

    return tvm.target.Target(target)
