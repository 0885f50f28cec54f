"""The line of an error that is shown says what went wrong."""

from __future__ import annotations

import pytest

from kintune.errors import cause_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("out of luck", "out of luck"),
        ("\n\n  first  \nsecond", "first"),
        ("Check failed: (IsFloat(x)) is false: power only applies to float", "power only applies to float"),
        ("[10:00:01] /x/y.cc:7: InternalError: Check failed: (a) is false: no\nmore", "more"),
        ("Check failed: (t.IsFloat()) is false: ", "the compiler's check (t.IsFloat()) failed"),
        ("# Metadata omitted. Use show_meta=True\nCannot emit it", "Cannot emit it"),
        ('Traceback (most recent call last):\n  File "a.py", line 1\nboom', "boom"),
        (
            'In ir.Op(span=None, name="relax.matmul", arguments=(ir.Info(name="x1", text="(a"),)), it is off',
            "In relax.matmul, it is off",
        ),
        ("In ir.Op(span=None), it is off", "In an operator, it is off"),
        ("In ir.Op(span=None, it is cut", "In ir.Op(span=None, it is cut"),
        ("", "RuntimeError"),
        ("x" * 1000, "x" * 300),
    ],
)
def test_the_cause_is_the_first_line_that_says_something(text: str, line: str) -> None:
    assert cause_line(RuntimeError(text)) == line
