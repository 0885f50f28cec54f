"""Messages in the words of whoever reads them: options for the command line, fields of a request for other programs.

Errors and reasons are written, and kept, with options such as `--no-onnxruntime`.  The portal has labels of its own.
"""

from __future__ import annotations

import re
from contextvars import ContextVar

from kintune.core.constraints import fields_of
from kintune.service.job_request import JobRequest

__all__ = ["COMMAND", "FACE_HEADER", "asked_by_command", "in_fields", "said"]

FACE_HEADER, COMMAND = "kintune-face", "command"
"""The header by which the command line asks for its own words, and its value."""

asked_by_command: ContextVar[bool] = ContextVar("asked_by_command", default=False)
"""Whether the request that is answered now comes from the command line."""

_FIELDS = {field.flag: f"{name}{'=false' * field.switches_off}" for name, field in fields_of(JobRequest).items()}
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")


def in_fields(text: str) -> str:
    """Returns a message with the fields of a request in place of the options of a job; other options stay."""
    return _OPTION.sub(lambda found: _FIELDS.get(found.group(), found.group()), text)


def said(text: str) -> str:
    """Returns a message in the words of whoever sent the request that is answered now."""
    return text if asked_by_command.get() else in_fields(text)
