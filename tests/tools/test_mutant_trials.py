"""Mutants in copies of a process: which code runs, and which function a line belongs to."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"

sys.path.insert(0, str(TOOLS))
try:
    import mutant_trials
finally:
    sys.path.remove(str(TOOLS))

SOURCE = """
from __future__ import annotations

LEAST = 3


def above(number, least=LEAST):
    return number > least


class Counter:
    start = 5

    def __init__(self):
        super().__init__()
        self.count = [each for each in range(self.start)][-1] + 1

    @staticmethod
    def twice(number):
        return 2 * number

    @classmethod
    def of(cls, number):
        def inner():
            return number

        made = cls()
        made.count = inner()
        return made
"""


@pytest.fixture
def module(tmp_path: Path) -> ModuleType:
    path = tmp_path / "counting.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("counting", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _code(scope: str, function: str, source: str) -> mutant_trials.Code:
    return mutant_trials.Code("counting", scope, function, f"from __future__ import annotations\n{source}")


def test_a_function_runs_other_code_wherever_it_was_imported_to(module: ModuleType) -> None:
    elsewhere = module.above
    assert (elsewhere(3), elsewhere(4)) == (False, True)
    _code("", "above", "def above(number, least=LEAST):\n    return number >= least\n").apply(module)
    assert (elsewhere(3), elsewhere(2)) == (True, False)
    _code("", "above", "def above(number, least=9):\n    return number > least\n").apply(module)
    assert (elsewhere(9), elsewhere(10)) == (False, True)


def test_so_do_methods_of_all_kinds(module: ModuleType) -> None:
    counter = module.Counter()
    assert (counter.count, counter.twice(4), module.Counter.of(7).count) == (5, 8, 7)
    source = "class Counter:\n    @staticmethod\n    def twice(number):\n        return 3 * number\n"
    _code("Counter", "twice", source).apply(module)
    assert (counter.twice(4), module.Counter.twice(5)) == (12, 15)
    source = "class Counter:\n    @classmethod\n    def of(cls, number):\n        return cls()\n"
    _code("Counter", "of", source).apply(module)
    assert module.Counter.of(7).count == 5
    source = (
        "class Counter:\n    def __init__(self):\n        super().__init__()\n        self.count = self.start + 2\n"
    )
    _code("Counter", "__init__", source).apply(module)
    assert module.Counter().count == 7


def test_each_piece_of_code_belongs_to_a_function(module: ModuleType) -> None:
    path = Path(str(module.__file__))
    found = mutant_trials.functions_of(path, "counting")
    lines = path.read_text().splitlines()

    def of(text: str) -> str | None:
        line = next(number for number, each in enumerate(lines, 1) if text in each)
        return found.get((str(path), line))

    assert of("def above") == "counting:above"
    assert of("def __init__") == "counting:Counter.__init__"
    assert of("@staticmethod") == "counting:Counter.twice"
    assert of("@classmethod") == of("def inner") == "counting:Counter.of"
    assert set(found.values()) == {
        "counting:above",
        "counting:Counter.__init__",
        "counting:Counter.twice",
        "counting:Counter.of",
    }
