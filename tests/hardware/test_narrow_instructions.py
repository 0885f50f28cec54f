from __future__ import annotations

import pytest

from kintune.errors import TargetError
from kintune.hardware.narrow_instructions import has_instructions, require_instructions


@pytest.mark.parametrize(
    ("precision", "extensions", "has"),
    [
        ("bf16", ("avx512f", "avx512vnni"), False),
        ("bf16", ("avx512bf16",), True),
        ("bf16", ("amxbf16", "amxtile"), True),
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
