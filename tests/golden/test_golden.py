"""What users' scripts and files rely on stays: help, JSON keys, databases and executables of earlier versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.golden.public_face import HERE, documents, help_text, pages_with_options

FILES = HERE / "files"
"""Written by the version before the second design: a network of two products, tuned for AVX2 with six trials."""


def test_the_help_of_every_command_is_what_it_was() -> None:
    assert help_text() == (HERE / "help.txt").read_text()


def test_json_documents_have_the_keys_that_they_had() -> None:
    assert documents() == json.loads((HERE / "documents.json").read_text())


def test_tables_of_options_in_the_documentation_are_made_from_their_definitions() -> None:
    pages = pages_with_options()
    assert {page.name for page in pages} == {"cli.md", "python.md"}
    assert [page.name for page, text in pages.items() if page.read_text() != text] == []


def test_records_of_the_version_before_are_read(tmp_path: Path) -> None:
    from kintune.records import Store

    copy = shutil.copy(FILES / "records.sqlite", tmp_path / "records.sqlite")
    with Store.open(str(copy)) as store:
        (run,) = store.runs.list()
        assert (run.run_id, run.model_name, run.state.value) == ("af36d3770c1e", "small", "finished")
        assert store.counts().measurements == 8
        assert not store.check()


def test_an_executable_of_the_version_before_is_refused_with_what_to_do() -> None:
    """Its plan would have to be made from the model; the records have what was measured."""
    from kintune.errors import InputError
    from kintune.runtime.package import read_manifest

    with pytest.raises(
        InputError, match=r"written in format 1, .*`kintune compile MODEL --output FILE.kt` makes a new"
    ):
        read_manifest(FILES / "small.kt")
