"""`kintune compile`: what reaches the job, and what is said."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import FakeFront
    from tests.support.command import Kintune

ZOO = "zoo:mobilenet_v1_0.5"

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def test_what_was_asked_for_reaches_the_job(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    said = kintune(
        "compile", ZOO, "--target", "llvm", "--threads", 3, "--seed", 7, "--rtol", 0.01, "--atol", 0.02,
        "--records", "r.sqlite", "--output", "out.kt", "--log", "out.log", "--quiet",
    )  # fmt: skip
    assert said.code == 0
    (request,) = fake_front.requests
    options = request.options
    assert not options.search
    assert (options.trials, options.minutes, options.until) == (None, None, None)
    assert (options.seed, options.rtol, options.atol) == (7, 0.01, 0.02)
    assert (request.target, request.threads, request.records) == ("llvm", 3, "r.sqlite")
    assert request.output == str(tmp_path / "out.kt")
    assert request.log == str(tmp_path / "out.log")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((ZOO, "--seed", -1), "seed must be 0 or more"),
        ((ZOO, "--output", "nowhere/out.kt"), "nowhere"),
        (("no.onnx",), "no.onnx"),
    ],
)
def test_wrong_input_is_one_line(kintune: Kintune, arguments: tuple[object, ...], said: str) -> None:
    told = kintune("compile", *arguments)
    assert told.code == 2
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_pipe_is_no_output(kintune: Kintune, fake_front: FakeFront, tmp_path: Path) -> None:
    os.mkfifo("pipe")
    told = kintune("compile", ZOO, "-o", "pipe")
    assert (told.code, fake_front.requests) == (2, [])
    assert "the output pipe is a device or a pipe" in told.err
