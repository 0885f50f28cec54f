"""The library of operators: those that the files of this package declare in `OPERATORS`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING

from kintune.models import converters
from kintune.models.onnx_nodes import DEFAULT_DOMAINS

if TYPE_CHECKING:
    from kintune.models.converters.registration import OnnxOperator

__all__ = ["find", "operators"]


@cache
def operators() -> tuple[OnnxOperator, ...]:
    """All operators, in the order of their files; one that differs between operator sets is there for each."""
    found: list[OnnxOperator] = []
    for module in pkgutil.iter_modules(converters.__path__):
        group = importlib.import_module(f"{converters.__name__}.{module.name}")
        found += getattr(group, "OPERATORS", ())
    return tuple(found)


@cache
def _versions() -> dict[tuple[str, str], list[OnnxOperator]]:
    found: dict[tuple[str, str], list[OnnxOperator]] = {}
    for operator in sorted(operators(), key=lambda each: each.since):
        found.setdefault((operator.domain, operator.name), []).append(operator)
    return found


def find(domain: str, name: str, opset: int) -> OnnxOperator | None:
    """The operator as of version `opset` of its domain's operator set; None if it is not in the library."""
    domain = "" if domain in DEFAULT_DOMAINS else domain
    versions = _versions().get((domain, name), [])
    return next((each for each in reversed(versions) if each.since <= opset), None)
