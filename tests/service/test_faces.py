from __future__ import annotations

import pytest

from kintune.service.faces import asked_by_command, in_fields, said


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("the CPU lacks bf16; leave --precision out", "the CPU lacks bf16; leave precision out"),
        ("bind it with --shape x=1x3", "bind it with shapes x=1x3"),
        ("leave --no-onnxruntime out, or --max-error 0.1", "leave onnxruntime=false out, or max_error 0.1"),
        ("--local-webhooks is for the operator; a--precision", "--local-webhooks is for the operator; a--precision"),
    ],
)
def test_programs_are_told_fields_and_the_command_line_options(text: str, fields: str) -> None:
    assert in_fields(text) == said(text) == fields
    token = asked_by_command.set(True)
    try:
        assert said(text) == text
    finally:
        asked_by_command.reset(token)
