from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from kintune.core.profile import Profile
from tests.support.profiles import PROFILE, alone

if TYPE_CHECKING:
    from tests.support.command import Kintune

Asked = list[tuple[tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the command asks for; it is given a profile as measured nowhere."""
    import kintune.cli.profile as command

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    kept: Asked = []

    def profile(*arguments: Any, **options: Any) -> Profile:
        kept.append((arguments, options))
        return PROFILE if options["model"] is not None else alone()

    monkeypatch.setattr(command, "profile", profile)
    return kept


def test_the_slowest_calls_are_shown(kintune: Kintune, asked: Asked) -> None:
    said = kintune("profile", "net.kt", "--top", 2, "--threads", 1, "--runs", 7)
    assert "layer3/conv2 (Conv)+Add+Relu" in said.out
    assert "1 more" in said.out
    assert asked == [(("net.kt", None), {"model": None, "threads": 1, "runs": 7})]


def test_onnxruntime_runs_the_model_beside_it(kintune: Kintune, asked: Asked) -> None:
    said = kintune("profile", "net.kt", "--model", "zoo:resnet18", "--constant", "n=3")
    assert "onnxruntime 1.2.3" in said.out
    ref = asked[0][1]["model"].ref
    assert (ref.source, list(ref.constants)) == ("resnet18", ["n"])


def test_constants_without_the_model_are_refused(kintune: Kintune, asked: Asked) -> None:
    said = kintune("profile", "net.kt", "--constant", "n=3")
    assert said.code == 2
    assert "--constant binds inputs of the original model: give that with --model" in said.err
    assert asked == []


def test_inputs_are_read(kintune: Kintune, asked: Asked) -> None:
    np.savez("x.npz", x=np.ones(2))
    assert kintune("profile", "net.kt", "--input", "x.npz").code == 0
    assert asked[0][0][1]["x"].tolist() == [1.0, 1.0]


def test_the_document_is_the_profile(kintune: Kintune, asked: Asked) -> None:
    said = kintune("profile", "net.kt", "--json", "-")
    assert msgspec.json.decode(said.out, type=Profile) == alone()
    assert json.loads(said.out)["schema_version"] == 1
    assert "layer3/conv2" in said.err


def test_a_page_and_a_trace_are_written(kintune: Kintune, asked: Asked) -> None:
    said = kintune("profile", "net.kt", "--html", "p.html", "--trace", "p.json")
    assert Path("p.html").read_text().startswith("<!doctype html>")
    assert json.loads(Path("p.json").read_text())["traceEvents"]
    assert "ui.perfetto.dev" in said.out


@pytest.mark.parametrize(
    "arguments",
    [("--html", "none/p.html"), ("--trace", "none/p.json"), ("--model", "none.onnx"), ("--input", "no.npz")],
)
def test_wrong_input_is_refused_before_anything_runs(
    kintune: Kintune, asked: Asked, arguments: tuple[str, str]
) -> None:
    said = kintune("profile", "net.kt", *arguments)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert not asked
