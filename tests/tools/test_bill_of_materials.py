"""Bills of materials: what they list, and that wheels with them are as pip wants them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.tools.test_docs_site import tool

pytestmark = pytest.mark.needs("cyclonedx")

METADATA = """Metadata-Version: 2.4
Name: a-thing
Version: 1.2
License-Expression: Apache-2.0
Requires-Dist: numpy<3,>=1.26
Requires-Dist: tomli>=2; python_version < "3.11"
Requires-Dist: rich>=13; extra == "colour"
Requires-Dist: numpy>=2; extra == "colour"
"""
VERSIONS = {"numpy": "2.4.6"}
INFO = "a_thing-1.2.dist-info"
BILL = f"{INFO}/sboms/a_thing.cdx.json"


def write_wheel(path: Path) -> Path:
    files = {"a_thing.py": "x = 1\n", f"{INFO}/METADATA": METADATA}
    files[f"{INFO}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{INFO}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0)), text)
    return path


def bill_in(wheel: Path) -> tuple[bytes, dict[str, Any]]:
    with zipfile.ZipFile(wheel) as archive:
        content = archive.read(BILL)
    return content, json.loads(content)


def test_it_lists_what_is_inside_and_what_is_required(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "a.whl")
    assert tool("bill_of_materials").add_bill(wheel, VERSIONS) == BILL
    _, bill = bill_in(wheel)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    subject = bill["metadata"]["component"]
    assert (subject["name"], subject["version"], subject["purl"]) == ("a-thing", "1.2", "pkg:pypi/a-thing@1.2")
    files = {each["name"]: each["hashes"][0]["content"] for each in subject["components"]}
    assert files["a_thing.py"] == hashlib.sha256(b"x = 1\n").hexdigest()
    needed = {
        each["name"]: (each["scope"], each.get("version"), len(each["properties"])) for each in bill["components"]
    }
    assert needed == {"numpy": ("required", "2.4.6", 2), "rich": ("optional", None, 1), "tomli": ("required", None, 1)}
    (own,) = [each for each in bill["dependencies"] if each["ref"] == subject["bom-ref"]]
    assert own["dependsOn"] == ["pkg:pypi/numpy@2.4.6", "pkg:pypi/rich", "pkg:pypi/tomli"]


def test_it_follows_the_schema(tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    wheel = write_wheel(tmp_path / "a.whl")
    tool("bill_of_materials").add_bill(wheel, VERSIONS)
    try:
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill_in(wheel)[0].decode()) is None
    except ImportError as error:
        pytest.skip(f"cyclonedx-python-lib validates with further packages: {error}")


def test_the_wheel_stays_whole_and_the_same(tmp_path: Path) -> None:
    first, second = write_wheel(tmp_path / "a.whl"), write_wheel(tmp_path / "b.whl")
    add = tool("bill_of_materials").add_bill
    for wheel in (first, second, first):  # once more: it is replaced
        add(wheel, VERSIONS)
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        record = csv.reader(io.StringIO(archive.read(f"{INFO}/RECORD").decode()))
        rows = {name: (digest, size) for name, digest, size in record}
        assert sorted(rows) == sorted(archive.namelist())
    content, _ = bill_in(first)
    hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    assert rows[BILL] == (f"sha256={hashed}", str(len(content)))


def test_versions_are_those_of_the_constraints() -> None:
    tried = tool("bill_of_materials").tried_versions(
        '# a comment\nnumpy==2.4.6\nA.b==1; python_version < "3"\nA.b==2; python_version >= "3"\n'
    )
    assert tried == {"numpy": "2.4.6", "a-b": "2"}
