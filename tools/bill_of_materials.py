#!/usr/bin/env python3
"""Puts a bill of materials into wheels: CycloneDX in JSON, in the folder `sboms` of their `.dist-info` (PEP 770).

    tools/bill_of_materials.py WHEEL...

It lists the wheel's files with their SHA-256 digests, and the packages that it requires, with the versions of
`constraints.txt`: those were tried together.  The same wheel gets the same bytes.  Needs cyclonedx-python-lib.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import os
import re
import sys
import uuid
import zipfile
from datetime import datetime, timezone
from email.message import Message
from email.parser import Parser
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
BUILT_WITH = ("hatchling", "ziglang")


def tried_versions(text: str) -> dict[str, str]:
    """The versions in a file of constraints, by the names of packages; those for the Python that runs this."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            pinned = Requirement(line)
            if pinned.marker is None or pinned.marker.evaluate(default_environment()):
                found[canonicalize_name(pinned.name)] = next(iter(pinned.specifier)).version
    return found


def bill_of(metadata: Message, files: dict[str, bytes], versions: dict[str, str]) -> bytes:
    """The document for a wheel with this metadata and these files."""
    from cyclonedx.model import HashAlgorithm, HashType, Property
    from cyclonedx.model.bom import Bom
    from cyclonedx.model.component import Component, ComponentScope, ComponentType
    from cyclonedx.model.license import DisjunctiveLicense
    from cyclonedx.output.json import JsonV1Dot6
    from packageurl import PackageURL

    def package(name: str, version: str | None, **more: Any) -> Component:
        purl = PackageURL("pypi", "", canonicalize_name(name), version)
        return Component(name=name, version=version, type=ComponentType.LIBRARY, purl=purl, bom_ref=str(purl), **more)

    name, version = str(metadata["Name"]), str(metadata["Version"])
    license_name = metadata["License-Expression"]
    subject = package(name, version, licenses=[DisjunctiveLicense(id=license_name)] if license_name else [])
    for path, content in sorted(files.items()):
        digest = HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(content).hexdigest())
        ref = f"{subject.bom_ref.value}#{path}"
        subject.components.add(Component(name=path, type=ComponentType.FILE, hashes=[digest], bom_ref=ref))
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, _digest_of(files)))
    bom.metadata.component = subject
    bom.metadata.timestamp = _time()
    for tool in BUILT_WITH:
        made_by = Component(name=tool, version=importlib.metadata.version(tool), type=ComponentType.APPLICATION)
        bom.metadata.tools.components.add(made_by)
    needed: dict[str, Component] = {}
    for text in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(text)
        key = canonicalize_name(requirement.name)
        own = version if key.startswith("kintune") else None
        if key not in needed:
            needed[key] = package(requirement.name, own or versions.get(key), scope=ComponentScope.OPTIONAL)
        if "extra ==" not in str(requirement.marker or ""):
            needed[key].scope = ComponentScope.REQUIRED
        needed[key].properties.add(Property(name="requires-dist", value=text))
    bom.components.update(needed.values())
    bom.register_dependency(subject, needed.values())
    return f"{JsonV1Dot6(bom).output_as_string(indent=2)}\n".encode()


def _time() -> datetime:
    """The one of the wheel's members, as hatchling has it: the time of building is no part of what is built."""
    return datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600")), timezone.utc)


def _digest_of(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return digest.hexdigest()


def add_bill(wheel: Path, versions: dict[str, str]) -> str:
    """Add the document to a wheel, which is replaced by renaming; returns its name in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    (record,) = [info.filename for info, _ in members if info.filename.endswith(".dist-info/RECORD")]
    folder = PurePosixPath(record).parent
    files = {
        info.filename: content
        for info, content in members
        if info.filename != record and "/sboms/" not in info.filename
    }
    metadata = Parser().parsestr(files[f"{folder}/METADATA"].decode())
    name = f"{folder}/sboms/{re.sub(r'[-_.]+', '_', str(metadata['Name']))}.cdx.json"
    document = bill_of(metadata, files, versions)
    part = wheel.with_name(f".{wheel.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in members:
            if info.filename == record:
                add = zipfile.ZipInfo(name, info.date_time)
                add.external_attr, add.compress_type = info.external_attr, zipfile.ZIP_DEFLATED
                archive.writestr(add, document)
                lines = [line for line in content.decode().splitlines() if not line.startswith(f"{folder}/sboms/")]
                hashed = base64.urlsafe_b64encode(hashlib.sha256(document).digest()).rstrip(b"=").decode()
                lines.insert(len(lines) - 1, f"{name},sha256={hashed},{len(document)}")
                content = ("\n".join(lines) + "\n").encode()
            elif "/sboms/" in info.filename:
                continue
            archive.writestr(info, content)
    os.replace(part, wheel)
    return name


def main(argv: list[str] | None = None) -> int:
    """Add documents; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    options = parser.parse_args(argv)
    versions = tried_versions((ROOT / "constraints.txt").read_text())
    for wheel in options.wheels:
        print(f"{wheel.name}: {add_bill(wheel, versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
