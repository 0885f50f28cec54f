"""What a job may ask for can be asked for everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kintune.cli.submit import command
from kintune.service.job_request import MOST_SETS, JobRequest
from tests.support.stand_in_client import StandInClient

if TYPE_CHECKING:
    from tests.support.command import Kintune


def test_every_field_of_a_request_is_an_option() -> None:
    assert {*JobRequest.__struct_fields__} <= {option.name for option in command.params}


class FakeClient(StandInClient):
    """A service that takes everything; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wanted: dict[str, Any] = {}

    def upload(self, path: str) -> dict[str, Any]:
        self.asked.append("upload")
        return {"id": 1, "name": "net"}

    def upload_inputs(self, path: str, model: int | None = None) -> list[dict[str, Any]]:
        self.asked.append("upload inputs")
        return [{"id": 7}, {"id": 7}]  # of the same content

    def submit(self, model: int, **wanted: Any) -> dict[str, Any]:
        self.asked.append("submit")
        self.wanted = {name: value for name, value in wanted.items() if value is not None}
        return {"id": "j1"}

    def job(self, job: str) -> dict[str, Any]:
        self.asked.append("job")
        return {"id": job}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    made = FakeClient()
    monkeypatch.setattr("kintune.cli.submit.CommandClient", made)
    return made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--until", "openvino*0.8"], "a service compares with onnxruntime alone"),
        (["--until", "soon"], "soon"),
        (["--webhook", "ftp://x"], "webhook must be an http or https address"),
        (["--other-shapes", "onnxruntime", "--no-onnxruntime"], "other_shapes cannot run in onnxruntime"),
        (["--device", "a b"], "is not a name of a device type"),
        (["--shape", "x=1x{1,2}", "--shape", "y=1x{1,2,3}"], "name equally many"),
    ],
)
def test_what_makes_no_sense_is_refused_before_the_upload(
    kintune: Kintune, service: FakeClient, given: list[str], said: str
) -> None:
    answer = kintune("submit", "net.onnx", *given)
    assert (answer.code, answer.err.count("\n"), service.asked) == (2, 1, [])
    assert said in answer.err


def test_too_many_sets_of_inputs_are_refused_before_the_upload(
    kintune: Kintune, service: FakeClient, tmp_path: Path
) -> None:
    for number in range(MOST_SETS + 1):
        (tmp_path / f"{number}.npz").write_bytes(b"arrays")
    given = ("submit", "net.onnx", "--precision", "int8", "--calibrate", tmp_path)
    answer = kintune(*given)
    assert (answer.code, service.asked) == (2, [])
    assert f"up to {MOST_SETS} sets of inputs" in answer.err
    (tmp_path / "0.npz").unlink()
    assert kintune(*given).code == 0
    assert service.asked == ["upload", "upload inputs", "submit"]


def test_the_service_is_asked_for_the_job_only_where_a_document_is_wanted(
    kintune: Kintune, service: FakeClient
) -> None:
    assert kintune("submit", "net.onnx").out == "j1\n"
    assert service.asked == ["upload", "submit"]
    answer = kintune("submit", "net.onnx", "--json", "-")
    assert json.loads(answer.out)["job"] == {"id": "j1"}
    assert service.asked[2:] == ["upload", "submit", "job"]


def test_inputs_to_compare_on_are_uploaded_and_named_once(
    kintune: Kintune, service: FakeClient, tmp_path: Path
) -> None:
    for name in ("a.npz", "b.npz"):
        (tmp_path / name).write_bytes(b"arrays")
    assert kintune("submit", "net.onnx", "--input", tmp_path, "--rtol", "0.01", "--atol", "0.001").code == 0
    assert service.asked == ["upload", "upload inputs", "submit"]
    assert service.wanted == {"rtol": 0.01, "inputs": [7]}
    assert kintune("submit", "net.onnx", "--keep-denormals").code == 0
    assert service.wanted == {"keep_denormals": True}
    assert kintune("submit", "net.onnx", "--no-onnxruntime", "--compile-only", "--device", "gpu").code == 0
    assert service.wanted == {"onnxruntime": False, "search": False, "device": "gpu"}
    del service.asked[3:]
    refused = kintune("submit", "net.onnx", "--rtol", "-1")
    assert (refused.code, service.asked[3:]) == (2, [])
    assert "rtol must be 0 or more" in refused.err


def test_who_stops_waiting_is_told_that_the_job_goes_on(
    kintune: Kintune, service: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(service, "wait", interrupt, raising=False)
    said = kintune("submit", "net.onnx", "--wait")
    assert (said.code, said.out) == (130, "j1\n")
    assert "job j1 goes on: kintune job watch j1 shows it" in said.err


def test_a_network_of_the_zoo_is_no_file(kintune: Kintune, service: FakeClient) -> None:
    said = kintune("submit", "zoo:resnet18")
    assert (said.code, service.asked) == (2, [])
    assert "zoo:resnet18: a service takes ONNX files" in said.err
