from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.spec_document import Document, SpecError, lines_of

TEXT = '''# a comment with model = "x" and [brackets
name = "a # no comment"
literal = 'C:\\'          # a backslash that escapes nothing

[matrix]
model = ["zoo:a",   # first
         "zoo:b",

         "zoo:c"]
many = """one
[matrix]
seed = 3"""
quotes = """she said ""hello""""
seed = 4
"quoted key" = 1
a.b.c = { d = 1, "e" = [1, 2] }
nested = [[1,
  2], [
  3]]

[[method]]
name = "one"
[[method]]
name = "two"
families = [
  "op", "hash",
  "none",
]
[method.deep]
x = 1
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("name",), 2),
        (("literal",), 3),
        (("matrix",), 5),
        (("matrix", "model"), 6),
        (("matrix", "model", 0), 6),
        (("matrix", "model", 1), 7),
        (("matrix", "model", 2), 9),
        (("matrix", "many"), 10),
        (("matrix", "quotes"), 13),
        (("matrix", "seed"), 14),
        (("matrix", "quoted key"), 15),
        (("matrix", "a", "b"), 16),
        (("matrix", "a", "b", "c", "e", 1), 16),
        (("matrix", "nested", 0, 1), 18),
        (("matrix", "nested", 1, 0), 19),
        (("method",), 21),
        (("method", 0, "name"), 22),
        (("method", 1), 23),
        (("method", 1, "name"), 24),
        (("method", 1, "families", 1), 26),
        (("method", 1, "families", 2), 27),
        (("method", 1, "deep"), 29),
        (("method", 1, "deep", "x"), 30),
    ],
)
def test_where_things_stand(path: tuple[str | int, ...], line: int) -> None:
    assert lines_of(TEXT)[path] == line


def test_lines_that_end_as_on_windows_count_once() -> None:
    assert lines_of("a = 1\r\nb = [\r\n2]\r\n")[("b", 0)] == 3


STRINGS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\\\"'"), max_size=12
)
VALUES = st.one_of(st.integers().map(str), st.booleans().map(lambda b: str(b).lower()), STRINGS.map(lambda s: f'"{s}"'))


@given(st.lists(st.tuples(st.lists(VALUES, max_size=4), st.integers(0, 3), st.booleans()), max_size=12))
def test_every_key_and_element_is_found_whatever_stands_around_it(entries: list[tuple[list[str], int, bool]]) -> None:
    lines: list[str] = []
    expected: dict[tuple[str | int, ...], int] = {}
    for index, (values, blank, spread) in enumerate(entries):
        lines += ["# [[x]] = '", *[""] * blank]
        expected["t", f"k{index}"] = len(lines) + 2
        if spread:
            lines.append(f"k{index} = [ # [")
            for place, value in enumerate(values):
                expected["t", f"k{index}", place] = len(lines) + 2
                lines.append(f"  {value}, # ]")
            lines.append("]")
        else:
            for place in range(len(values)):
                expected["t", f"k{index}", place] = len(lines) + 2
            lines.append(f"k{index} = [{', '.join(values)}]")
    found = lines_of("\n".join(["[t]", *lines]))
    assert {path: line for path, line in found.items() if path != ("t",)} == expected


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 5000 + "]" * 5000])
def test_what_goes_beyond_the_limits_of_python_is_refused(value: str) -> None:
    with pytest.raises(SpecError, match=r"spec\.toml: has a number that is too long, or is nested too deep"):
        Document("spec.toml", f"x = {value}")
