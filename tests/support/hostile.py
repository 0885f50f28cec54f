"""Values, JSON documents and archives as only somebody who means harm, or a broken disk, would send them."""

from __future__ import annotations

import io
import json
import struct
import warnings
import zipfile
from random import Random
from typing import Any

from kintune.runtime.stored_zip import write_members

__all__ = ["any_text", "any_value", "changed_archive", "changed_bytes", "changed_document", "members_of", "packed"]

_TEXTS = ("", "x", "../../etc/passwd", "/etc/passwd", "a\0b", "line\nline", "\u202e", "é" * 300, "float32", "bytes")
_NUMBERS = (0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40, 1e308, 0.5, -0.0)


def any_value(random: Random) -> Any:
    """A value that JSON can hold."""
    return random.choice(
        (
            lambda: None,
            lambda: random.random() < 0.5,
            lambda: random.choice(_TEXTS),
            lambda: random.choice(_NUMBERS),
            lambda: random.randint(-1 << 70, 1 << 70) >> random.randrange(70),
            lambda: random.gauss(0, 1) * 10 ** random.randint(-20, 20),
            lambda: any_text(random),
            lambda: [random.randint(-3, 5) for _ in range(random.randrange(5))],
            lambda: {random.choice(_TEXTS): random.randint(-3, 5) for _ in range(random.randrange(3))},
        )
    )()


def any_text(random: Random) -> str:
    """A short text of characters from anywhere but the surrogates."""
    planes = (0x20, 0x7F, 0x7FF, 0xD7FF, 0x10FFFF)
    numbers = (random.randrange(random.choice(planes) + 1) for _ in range(random.randrange(12)))
    return "".join(chr(number) for number in numbers if not 0xD800 <= number < 0xE000)


def changed_document(random: Random, document: Any) -> Any:
    """The document with one or two places changed: another value, one that is missing, or one too many."""
    changed = json.loads(json.dumps(document))
    for _ in range(random.randint(1, 2)):
        places = _places(changed)
        holder, key = places[random.randint(0, len(places) - 1)]
        match random.randint(0, 5):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.append(json.loads(json.dumps(holder[key])))
            case _:
                holder[key] = any_value(random)
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


def changed_bytes(random: Random, content: bytes, start: int = 0) -> bytes:
    """The content with some bytes from `start` on changed, cut off, or doubled."""
    data = bytearray(content)
    for _ in range(random.randint(1, 4)):
        at = random.randint(start, max(start, len(data) - 1))
        match random.randint(0, 9):
            case 0:
                del data[at:]
            case 1:
                data[at:at] = data[at : at + random.randint(1, 64)]
            case 2:
                del data[at : at + random.randint(1, 64)]
            case 3:
                data[at : at + 4] = struct.pack("<L", random.choice([0, 1, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF]))
            case _:
                data[at : at + 1] = bytes([random.randint(0, 255)])
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names that occur twice
        if compression == zipfile.ZIP_STORED:
            write_members(target, members)
            return target.getvalue()
        with zipfile.ZipFile(target, "w", compression) as file:
            for name, content in members:
                file.writestr(name, content)
    return target.getvalue()


def changed_archive(random: Random, archive: bytes) -> bytes:
    """The zip file with members that are missing, doubled, renamed, compressed, emptied, or replaced by zeros; or with
    changed bytes in its directory.
    """
    if random.random() < 0.5:
        return changed_bytes(random, archive, _directory(archive))
    members = members_of(archive)
    at = random.randint(0, len(members) - 1)
    name, content = members[at]
    match random.randint(0, 5):
        case 0:
            del members[at]
        case 1:
            members.insert(random.randint(0, len(members)), (name, changed_bytes(random, content or b"x")))
        case 2:
            members[at] = random.choice(["../" + name, "/" + name, name + "/", name.upper(), "a\\b"]), content
        case 3:
            members[at] = name, b""
        case 4:
            members[at] = name, bytes(random.choice([1, 4096, 1 << 22]))
        case _:
            members[at] = name, changed_bytes(random, content or b"x")
    compressions = [zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA]
    return packed(members, random.choice(compressions))
