"""What a new user does, as `docs/tasks.md` says it: by the commands and clicks that stand there, and no more."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.acceptance.conftest import Place
from tests.acceptance.test_remote_machines import Fleet, fleet
from tests.service.portal.conftest import chromium
from tests.service.portal.test_new_job import downloaded, hand_in, network
from tests.support.browsing import choose, click, picture, text, violations, wait_for
from tests.support.doc_blocks import blocks
from tests.support.doc_commands import command_blocks

__all__ = ["chromium", "fleet"]  # fixtures

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
MOST = 5


def commands(heading: str) -> list[str]:
    """The commands of a section of the page."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return [command for block in command_blocks(section) for command in block.commands]


class Clicks:
    """A browser whose clicks are counted; what is typed is not."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser = browser
        self.count = 0

    def click(self, words: str) -> None:
        self.count += 1
        click(self.browser, words)

    def tick(self, css: str, place: int) -> None:
        self.count += 1
        self.browser.find_elements(By.CSS_SELECTOR, css)[place].click()

    def hand_in(self, path: Path) -> None:
        self.count += 1
        hand_in(self.browser, path)

    def choose(self, field: str, words: str) -> None:
        self.count += 1
        choose(self.browser, field, words)

    def write(self, field: str, words: str) -> None:
        found = self.browser.find_element(By.CSS_SELECTOR, f"input[aria-label='{field}']")
        found.send_keys(Keys.CONTROL, "a")
        found.send_keys(words)


def test_no_task_takes_more_commands() -> None:
    headings = re.findall(r"^## (.*)$", PAGE.read_text(), re.M)
    assert len(headings) == 6
    assert all(len(commands(heading)) <= MOST for heading in headings)
    installing = next(block for block in blocks(PAGE.with_name("releases.md")) if block.heading == "Install")
    assert commands("A first model, from wheel to result") == installing.text.splitlines()


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_why_a_model_is_slow_and_a_program_in_c(empty_place: Place) -> None:
    onnx.save(network(), empty_place.folder / "model.onnx")
    said = [run(empty_place, command) for command in commands("Why a model is slow")]
    assert "onnxruntime" in said[0]
    assert "operators, slowest first" in said[1]
    assert "MatMul" in said[1]
    assert "fused_" not in said[1]
    said = [run(empty_place, command) for command in commands("Deploy it to C")[1:]]
    assert "ms" in said[-1] or "us" in said[-1]


def run(place: Place, command: str) -> str:
    """Type a command of the page, with fewer trials, and this environment's `kintune`."""
    typed = re.sub(r"--minutes \d+", "--trials 8 --no-onnxruntime", command)
    typed = re.sub(r"^kintune ", f"{sys.executable} -m kintune ", typed)
    done = subprocess.run(
        ["sh", "-c", typed],
        cwd=place.folder, env={**os.environ, **place.environment}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.tvm
@pytest.mark.slow
@pytest.mark.needs("chromium")
@pytest.mark.timeout(900)
def test_three_tasks_in_the_portal(fleet: Fleet, chromium: webdriver.Chrome, tmp_path: Path) -> None:
    onnx.save(network(), tmp_path / "dense.onnx")
    board = fleet.start("device", "start", "--name", "board-1", "--type", "pi5")
    board.wait_until("joined as board-1")

    submit = Clicks(chromium)
    chromium.get(fleet.service.url)
    submit.click("New job")
    wait_for(chromium, "Drop an ONNX file")
    submit.hand_in(tmp_path / "dense.onnx")
    wait_for(chromium, "MatMul x2")
    submit.write("Minutes at most", "0.2")
    submit.click("Make it fast")
    wait_for(chromium, "Take it with you", seconds=300)
    submit.click("dense.kt")
    assert downloaded(tmp_path, "dense.kt").stat().st_size > 1000
    assert submit.count <= 4

    for words in ("Where the time goes", "kernel calls take", "Trace for Perfetto", "(MatMul)"):
        wait_for(chromium, words)
    said = text(chromium)
    assert "fused_" not in said
    assert violations(chromium) == []
    picture(chromium, "6-profile", whole=True)

    of_board = Clicks(chromium)
    chromium.get(fleet.service.url)
    of_board.click("New job")
    wait_for(chromium, "Drop an ONNX file")
    of_board.hand_in(tmp_path / "dense.onnx")
    wait_for(chromium, "MatMul x2")
    of_board.write("Minutes at most", "0.2")
    of_board.choose("Device", "pi5")
    of_board.click("Make it fast")
    wait_for(chromium, "on pi5")
    wait_for(chromium, "Take it with you", seconds=300)
    assert of_board.count <= 5

    compare = Clicks(chromium)
    chromium.get(fleet.service.url)
    wait_for(chromium, "1 to 2 of 2")
    compare.tick("input[name=job]", 0)
    compare.tick("input[name=job]", 1)
    wait_for(chromium, "2 chosen")
    compare.tick("#do-compare", 0)
    wait_for(chromium, "Operators, by the largest difference")
    wait_for(chromium, "the fastest")
    assert compare.count <= 3
    picture(chromium, "6-compare", whole=True)
