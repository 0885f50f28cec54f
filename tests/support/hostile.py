"""Values, JSON documents and archives as only somebody who means harm, or a broken disk, would send them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

from kintune.runtime.stored_zip import write_members

Draw: TypeAlias = Callable[[st.SearchStrategy[Any]], Any]
"""`data.draw` of a property test: what is changed is too long to be the argument of a strategy."""

__all__ = ["any_value", "changed_archive", "changed_bytes", "changed_document", "members_of", "packed"]

_TEXTS = ("", "x", "../../etc/passwd", "/etc/passwd", "a\0b", "line\nline", "\u202e", "é" * 300, "float32", "bytes")
_NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40, 1e308, 0.5, -0.0)

any_value: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_TEXTS),
    st.sampled_from(_NUMBERS),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.lists(st.integers(-3, 5), max_size=4),
    st.dictionaries(st.sampled_from(_TEXTS), st.integers(), max_size=2),
)
"""A value that JSON can hold."""


def changed_document(draw: Draw, document: Any) -> Any:
    """The document with one or two places changed: another value, one that is missing, or one too many."""
    changed = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(1, 2))):
        places = _places(changed)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.integers(0, 5)):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(json.loads(json.dumps(holder[key])))
            case _:
                holder[key] = draw(any_value)
        if not _places(changed):
            break
    return changed


def _places(document: Any) -> list[tuple[Any, Any]]:
    """All places of a document: a dictionary and a key, or a list and an index."""
    found: list[tuple[Any, Any]] = []
    queue = [document]
    while queue:
        holder = queue.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        found += [(holder, key) for key in keys]
        queue += [holder[key] for key in keys]
    return found


def changed_bytes(draw: Draw, content: bytes, start: int = 0) -> bytes:
    """The content with some bytes from `start` on changed, cut off, or doubled."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(start, max(start, len(data) - 1)))
        match draw(st.integers(0, 9)):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = data[at : at + draw(st.integers(1, 64))]
            case 2:
                del data[at : at + draw(st.integers(1, 64))]
            case 3:
                data[at : at + 4] = struct.pack("<L", draw(st.sampled_from([0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF])))
            case _:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
    return bytes(data)


def members_of(archive: bytes) -> list[tuple[str, bytes]]:
    """The members of a zip file, in their order."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return [(name, file.read(name)) for name in file.namelist()]


def _directory(archive: bytes) -> int:
    """Where the directory of a zip file begins."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return file.start_dir


def packed(members: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of these members, whose names may occur twice; what is not compressed begins at pages."""
    target = io.BytesIO()
    if compression == zipfile.ZIP_STORED:
        write_members(target, members)
        return target.getvalue()
    with zipfile.ZipFile(target, "w", compression) as file:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            file.writestr(info, content)
    return target.getvalue()


def changed_archive(draw: Draw, archive: bytes) -> bytes:
    """The zip file with members that are missing, doubled, renamed, compressed, emptied, or replaced by zeros; or with
    changed bytes in its directory.
    """
    if draw(st.booleans()):
        return changed_bytes(draw, archive, _directory(archive))
    members = members_of(archive)
    at = draw(st.integers(0, len(members) - 1))
    name, content = members[at]
    match draw(st.integers(0, 5)):
        case 0:
            del members[at]
        case 1:
            members.insert(draw(st.integers(0, len(members))), (name, changed_bytes(draw, content or b"x")))
        case 2:
            members[at] = draw(st.sampled_from(["../" + name, "/" + name, name + "/", name.upper(), "a\\b"])), content
        case 3:
            members[at] = name, b""
        case 4:
            members[at] = name, bytes(draw(st.sampled_from([1, 4096, 1 << 22])))
        case _:
            members[at] = name, changed_bytes(draw, content or b"x")
    compressions = [zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]
    return packed(members, draw(st.sampled_from(compressions)))
