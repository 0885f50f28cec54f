"""Requests drawn from the description of an API in OpenAPI: most fit it, and in some one thing is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple
from urllib.parse import quote

from tests.support.hostile import any_text, any_value

__all__ = ["Drawn", "Operation", "operations_of"]

_ODD = 12  # one value of so many is not what the description asks for
_DEEPEST = 4
_BODIES = (
    b"", b"{", b"null", b"[]", b'"x"', b"[" * 50_000, b'{"a":' * 50_000, b"1" * 6000, b"\xff\xfe", b"NaN",
    b'{"model": 1, "model": 2}', b'{"model": 1e400}', b'{"model": 1, "wanted": {"minutes": NaN}}', b"\0" * 100,
)  # fmt: skip
_TYPES = (
    "application/json",
    "application/octet-stream",
    "text/plain",
    "application/json; charset=utf-16",
    "",
)
_TEXTS = ("", "1", "-1", "..", "%00", "a/b", "\0", "é", "\udcff", "x" * 300, "9" * 30, "1e999", "'--")
_BEYOND = (float("nan"), float("inf"), "\ud800", -1, 1 << 70)


class Drawn(NamedTuple):
    """A request."""

    method: str
    path: str
    body: bytes
    headers: dict[str, str]


class Operation(NamedTuple):
    """One method of one path, as the description has it; `known` has values that lead to something, by name."""

    method: str
    path: str
    about: dict[str, Any]
    schemas: dict[str, Any]
    known: Mapping[str, Sequence[Any]]

    def draw(self, random: Random) -> Drawn:
        """Draw a request."""
        path, query, headers = self.path, [], {}
        for parameter in self.about.get("parameters", ()):
            name, place = parameter["name"], parameter["in"]
            if place != "path" and random.randint(0, 2):
                continue
            value = self._parameter(random, name, parameter["schema"])
            if place == "path":
                path = path.replace(f"{{{name}}}", _quoted(value))
            elif place == "query":
                query += [f"{name}={_quoted(each)}" for each in (value if isinstance(value, list) else [value])]
            elif (text := str(value)).isascii() and text.isprintable() and text == text.strip():
                headers[name] = text
        body = self._body(random, headers)
        return Drawn(self.method, path + ("?" + "&".join(query) if query else ""), body, headers)

    def _parameter(self, random: Random, name: str, schema: dict[str, Any]) -> Any:
        if random.randint(0, 5) == 0:
            return _text(random)
        return self._named(random, name, schema)

    def _named(self, random: Random, name: str, schema: dict[str, Any], depth: int = 0) -> Any:
        if self.known.get(name) and random.randint(0, 3):
            return random.choice(self.known[name])
        return self._value(random, schema, depth)

    def _body(self, random: Random, headers: dict[str, str]) -> bytes:
        if "requestBody" not in self.about:
            return b""
        content = self.about["requestBody"]["content"]
        if random.randint(0, 15) == 0:
            headers["content-type"] = random.choice(_TYPES)
        if "application/json" not in content or random.randint(0, 9) == 0:
            return random.choice(_BODIES) if random.random() < 0.5 else random.randbytes(random.randrange(64))
        headers.setdefault("content-type", "application/json")
        return json.dumps(self._value(random, content["application/json"]["schema"])).encode()

    def _value(self, random: Random, schema: dict[str, Any], depth: int = 0) -> Any:
        if "$ref" in schema:
            return self._value(random, self.schemas[schema["$ref"].rpartition("/")[2]], depth)
        if random.randint(0, _ODD) == 0 or depth > _DEEPEST:
            return random.choice(_BEYOND) if random.random() < 0.3 else any_value(random)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self._value(random, schema[choice][random.randint(0, len(schema[choice]) - 1)], depth)
        if "enum" in schema:
            return random.choice(schema["enum"])
        match schema.get("type"):
            case "object":
                return self._object(random, schema, depth)
            case "array":
                return [self._value(random, schema.get("items", {}), depth + 1) for _ in range(random.randint(0, 3))]
            case "integer":
                return random.randint(int(schema.get("minimum", -5)), int(min(schema.get("maximum", 1 << 62), 1 << 62)))
            case "number":
                least = schema.get("minimum", schema.get("exclusiveMinimum", -5.0))
                return random.uniform(least, max(schema.get("maximum", 1e9), least))
            case "boolean":
                return random.random() < 0.5
            case "null":
                return None
            case "string":
                return random.choice((_text(random), "cpu", "a", "x" * schema.get("maxLength", 1)))
            case _:
                return any_value(random)

    def _object(self, random: Random, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        made = {}
        for name, inner in schema.get("properties", {}).items():
            if name in schema.get("required", ()) or random.randint(0, 3) == 0:
                made[name] = self._named(random, name, inner, depth + 1)
        if more := schema.get("additionalProperties"):
            for _ in range(random.randint(0, 2)):
                made[_text(random)] = self._value(random, more if isinstance(more, dict) else {}, depth + 1)
        if random.randint(0, 2 * _ODD) == 0:
            made[_text(random)] = any_value(random)
        return made


def operations_of(description: dict[str, Any], known: Mapping[str, Sequence[Any]]) -> list[Operation]:
    """All operations of an API, in the order of its paths."""
    schemas = description["components"]["schemas"]
    return [
        Operation(method.upper(), path, about, schemas, known)
        for path, methods in sorted(description["paths"].items())
        for method, about in sorted(methods.items())
    ]


def _text(random: Random) -> str:
    return random.choice(_TEXTS) if random.random() < 0.5 else any_text(random)


def _quoted(value: Any) -> str:
    return quote(str(value).encode("utf-8", "surrogatepass"), safe="")
