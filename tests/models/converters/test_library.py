"""An operator is declared in one place: toys that are added there are found wherever operators are known."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.models_page import PAGE, with_declared

pytestmark = pytest.mark.tvm


def test_an_operator_that_is_added_in_one_file_is_found_everywhere() -> None:
    command = [sys.executable, "-m", "tests.support.toy_operator"]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["left"] == ["com.microsoft.Toyed"]
    assert found["drawn"]
    assert found["without_tvm"]
    own, *rows = found["page"]
    assert ", Toy." in own
    assert rows == [
        "| RegexFullMatch |  |  | it matches toys |",
        "| com.microsoft::Toy | `repeats` | `input 0`: float32 | sideways is not supported |",
    ]
    taken, constant, types, sideways, straight = found["imported"]
    assert "(6,)" in taken
    assert straight == taken
    assert constant == "the repeats depend on the network's inputs; fix them in the file, or --constant n=VALUE"
    assert types == "elements of int32, which are not supported; float32 is"
    assert sideways == "sideways is not supported"


def test_the_page_says_what_operators_declare() -> None:
    from kintune.models.converters.library import operators

    page = PAGE.read_text()
    assert with_declared(page, operators()) == page, "python -m tests.support.models_page --declared writes it anew"


def test_the_newest_version_that_a_file_may_use_counts() -> None:
    from kintune.models.converters.library import find

    old, new = find("", "Clip", 10), find("ai.onnx", "Clip", 11)
    assert old is not None
    assert new is not None
    assert (old.since, new.since) == (1, 11)
    assert find("com.microsoft", "Clip", 11) is None
