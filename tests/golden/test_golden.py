"""What users' scripts and files rely on stays: help, JSON keys, databases and executables of earlier versions."""

from __future__ import annotations

import json
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.golden.public_face import HERE, documents, help_text

FILES = HERE / "files"
"""Written by the version before the second design: a network of two products, tuned for AVX2 with six trials."""


def test_the_help_of_every_command_is_what_it_was() -> None:
    assert help_text() == (HERE / "help.txt").read_text()


def test_json_documents_have_the_keys_that_they_had() -> None:
    assert documents() == json.loads((HERE / "documents.json").read_text())


def test_records_of_the_version_before_are_read(tmp_path: Path) -> None:
    from kintune.records import Store

    copy = shutil.copy(FILES / "records.sqlite", tmp_path / "records.sqlite")
    with Store.open(str(copy)) as store:
        (run,) = store.runs.list()
        assert (run.run_id, run.model_name, run.state.value) == ("af36d3770c1e", "small", "finished")
        assert store.counts().measurements == 8
        assert not store.check()


@pytest.mark.tvm
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the executable was built for x86-64")
def test_an_executable_of_the_version_before_runs() -> None:
    import onnxruntime

    import kintune

    executable = kintune.open(FILES / "small.kt")
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    session = onnxruntime.InferenceSession(str(FILES / "small.onnx"), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(executable.run(x)["y"], session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)
