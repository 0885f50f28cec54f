from __future__ import annotations

from kintune.core.model import ModelRef


def test_other_files_are_read_of_the_users_models_and_of_the_zoos() -> None:
    assert ModelRef("onnx", "a.onnx", "a", own=True).reads_other_files
    assert ModelRef("zoo", "gpt2", "gpt2").reads_other_files
    assert not ModelRef("onnx", "a.onnx", "a").reads_other_files
