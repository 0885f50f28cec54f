from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from kintune.core.model import Constant, ModelRef
from kintune.errors import ModelError, StorageError
from kintune.tuning.job.job_files import JobFiles
from kintune.wire.staging import MADE_VARIABLE, READY, STAGING_VARIABLE, staged_name
from tests.support.toy_tools import toy_spec

FRONT = msgspec.structs.replace(
    toy_spec(),
    model=ModelRef(
        "onnx", "/front/net.onnx", "net", constants={"mask": Constant("f", (1,), "d", path="/front/mask.npy")}
    ),
    input_files=("/front/one.npz",),
    output="/front/net.kt",
)


@pytest.fixture
def staging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The staging directory of a process to which all files of the job were brought."""
    for path in FRONT.files:
        (tmp_path / staged_name(path)).touch()
    (tmp_path / "made").mkdir()
    monkeypatch.setenv(STAGING_VARIABLE, str(tmp_path))
    monkeypatch.setenv(MADE_VARIABLE, str(tmp_path / "made"))
    return tmp_path


def test_a_job_reads_copies_and_speaks_of_the_fronts_files(staging: Path) -> None:
    files = JobFiles(FRONT)
    assert FRONT.files == ("/front/net.onnx", "/front/mask.npy", "/front/one.npz")
    assert files.spec.files == tuple(str(staging / staged_name(path)) for path in FRONT.files)
    assert files.spec.output == FRONT.output
    assert files.inputs == FRONT.input_files
    assert files.named(files.spec.model.source) == "/front/net.onnx"
    assert files.named("/somewhere/else.onnx") == "/somewhere/else.onnx"
    written = JobFiles.place_of("/front/net.kt.ab.exported.onnx")
    assert written == str(staging / "made" / "net.kt.ab.exported.onnx")
    assert files.named(written) == "/front/net.kt.ab.exported.onnx"
    assert files.named(None) is None
    with pytest.raises(ModelError, match=r"^/front/net\.onnx: is empty$"), files.named_in_errors():
        raise ModelError(f"{files.spec.model.source}: is empty")


def test_here_nothing_has_another_name() -> None:
    files = JobFiles(FRONT)
    assert files.spec == FRONT
    assert files.place_of("/front/net.kt.unproven") == "/front/net.kt.unproven"


def test_a_digest_tells_what_was_written_from_what_others_wrote(tmp_path: Path) -> None:
    path = str(tmp_path / "net.kt.unproven")
    digests = []
    for content in (b"ours", b"theirs", b"ours"):
        Path(path).write_bytes(content)
        digests.append(JobFiles.digests(path, None))
    assert digests[0] == digests[2] != digests[1]
    Path(f"{path}.board").write_bytes(b"of the board")
    assert JobFiles.digests(path) == {**digests[0], f"{path}.board": JobFiles.digests(f"{path}.board")[f"{path}.board"]}
    assert JobFiles.digests(str(tmp_path / "gone")) == {str(tmp_path / "gone"): ""}


def test_results_are_handed_over_if_they_were_written(staging: Path) -> None:
    Path(JobFiles.place_of("/front/net.kt.unproven")).write_bytes(b"executable")
    for name in ("net.kt.unproven", "net.kt.untuned"):
        JobFiles.hand_over(f"/front/{name}")
    assert [path.name for path in (staging / "made").glob(f"*{READY}")] == [f"net.kt.unproven{READY}"]
    os.mkdir(JobFiles.place_of("/front/net.kt.alone"))
    with pytest.raises(StorageError, match=r"^net\.kt\.alone cannot be handed over: Is a directory$"):
        JobFiles.hand_over("/front/net.kt.alone")
