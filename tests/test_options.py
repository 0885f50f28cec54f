"""An option is declared in one place: a toy that is added there is found in every face."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_an_option_that_is_added_in_one_place_is_found_everywhere() -> None:
    command = [sys.executable, "-m", "tests.support.toy_option"]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for text in found["help"].values():
        before, _, after = text.partition("--toys INTEGER")
        assert "The result:" in before
        assert after.split()[:5] == ["Number", "of", "toys.", "[default:", "1]"]
    assert set(found["refused"]) == {"toys must be 1 or more and at most 9, and is 10"}
    assert found["compiles"]
    assert (found["run"], found["sent"], found["submitted"]) == (3, 3, 3)
    assert found["kept"] == [True, True]
    assert found["sent_too"]
    assert found["told_too"] == "Soft: False, it is loud, Size: 2.5, Colour: green, Side: right, Called: x y"
    assert "--no-soft Be hard." in " ".join(found["help"]["submit"].split())
    assert "--size FLOAT Size. [default: as large as it gets]" in " ".join(found["help"]["tune"].split())
    assert "--loud" not in found["help"]["compile"]  # its section is about the search
    assert found["told"] == [["3 toys at hand"], "3 toys at hand"]
    assert found["schema"] == {
        "default": 1, "description": "Number of toys.", "maximum": 9, "minimum": 1, "title": "Toys", "type": "integer"
    }  # fmt: skip
    assert found["form"] == {"hint": "Nine at most", "model-value": "3"}
    assert found["words"] == ["leave toys out", ["toys", "Must be few"]]
    assert "| `--toys INTEGER` | Number of toys. [default: 1] ([more](cli.md#toys)) |" in found["pages"]
    assert "| `toys` | `1` | Number of toys. ([more](cli.md#toys)) |" in found["pages"]
    assert "| `toys` | int | `1` | Number of toys. |" in found["reference"]
