"""What a job reads."""

from __future__ import annotations

from kintune.core.config import named_files
from kintune.core.model import Constant, ModelRef


def test_a_job_reads_its_model_its_constants_and_what_is_named_besides() -> None:
    constants = {"a": Constant("float32", (), "", path="a.npy"), "b": Constant("float32", (), "", b"0000")}
    file = ModelRef("onnx", "m.onnx", "m", constants=constants)
    assert named_files(file, ["x.npz"], [], ["y.npz", "z.npz"]) == ("m.onnx", "a.npy", "x.npz", "y.npz", "z.npz")
    assert named_files(ModelRef("zoo", "gpt2", "gpt2"), ["x.npz"]) == ("x.npz",)
