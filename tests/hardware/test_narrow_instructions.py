from __future__ import annotations

import json

import pytest

from kintune.core.measurement_protocol import FLUSHED, DeviceType
from kintune.errors import TargetError
from kintune.hardware.narrow_instructions import check_narrow, has_instructions, lacking, require_instructions


@pytest.mark.parametrize(
    ("precision", "extensions", "has"),
    [
        ("bf16", ("avx512f", "avx512vnni"), False),
        ("bf16", ("avx512bf16",), True),
        ("bf16", ("amxbf16", "amxtile"), True),
        ("bf16", ("bf16", "neon"), True),
        ("int8", ("avx512bf16",), False),
        ("int8", ("avxvnni",), True),
        ("fp32", (), True),
        ("auto", (), True),
    ],
)
def test_what_a_processor_computes_itself(precision: str, extensions: tuple[str, ...], has: bool) -> None:
    assert has_instructions(precision, extensions) == has
    assert has_instructions(precision, None)
    if has:
        require_instructions(precision, extensions, "a CPU")
    else:
        with pytest.raises(TargetError, match=f"precision {precision}: a CPU has no instructions for"):
            require_instructions(precision, extensions, "a CPU")


@pytest.mark.parametrize(
    ("target", "isa", "protocol", "lacks"),
    [
        ("llvm", ("avx512bf16", "avx512vnni"), "2-cold", set()),
        ("llvm", ("avx512vnni",), "2-cold", {"bf16"}),
        ("llvm", (), "2-cold", {"bf16", "int8"}),
        ("llvm", ("avx512bf16", "avx512vnni"), f"2-{FLUSHED}", {"bf16", "int8", "auto"}),
        ("cuda", ("avx512bf16",), "2-cold", {"bf16", "int8", "auto"}),
    ],
)
def test_what_a_device_lacks_is_refused_with_the_reason(
    target: str, isa: tuple[str, ...], protocol: str, lacks: set[str]
) -> None:
    device = DeviceType(json.dumps({"kind": target}), "A Processor", isa, 2, protocol)
    assert set(lacking(device)) == lacks
    for precision in ("fp32", "bf16", "int8", "auto"):
        if precision in lacks:
            with pytest.raises(TargetError, match=f"precision {precision}: "):
                check_narrow(device, precision)
        else:
            check_narrow(device, precision)


def test_boards_take_no_quantised_weights() -> None:
    with pytest.raises(TargetError, match="weights of 4 bits: boards run models as they are"):
        check_narrow(DeviceType('{"kind": "llvm"}', "Pi", (), 2, f"2-{FLUSHED}"), "fp32", 4)
