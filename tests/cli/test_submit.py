"""What a job may ask for can be asked for everywhere."""

from __future__ import annotations

import re
from pathlib import Path

from kintune.cli.submit import command
from kintune.service.job_request import JobRequest
from kintune.service.portal import job_form

_CALLED = {"search": "compile_only"}


def test_every_field_of_a_request_is_an_option() -> None:
    options = {option.name for option in command.params}
    assert {_CALLED.get(name, name) for name in JobRequest.__struct_fields__} <= options


def test_every_field_of_a_request_is_in_the_portals_form() -> None:
    source = Path(str(job_form.__file__)).read_text()
    assert set(JobRequest.__struct_fields__) == set(re.findall(r'wanted\["(\w+)"\] =', source))
