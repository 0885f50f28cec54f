"""The library of operators: those that the files of this package declare in `OPERATORS`.

Does not import TVM until an operator is looked up.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from onnx import defs

from kintune.models import converters
from kintune.models.foreign_operators import ONNXRUNTIME_DOMAIN
from kintune.models.onnx_nodes import DEFAULT_DOMAINS

if TYPE_CHECKING:
    from kintune.models.converters.registration import OnnxOperator

__all__ = ["declared", "find", "operators", "standard"]

_DOMAINS = {"STANDARD": "", "MICROSOFT": ONNXRUNTIME_DOMAIN}
"""What the names of domains in declarations mean."""


_WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})
"""Operators that hold graphs; no converter gets them.  Many of them are written out node by node."""


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


@cache
def declared() -> frozenset[tuple[str, str]]:
    """Domains and names of all operators, read from the files' text: importing them would import the compiler."""
    found = set()
    for folder in converters.__path__:
        for path in Path(folder).glob("*.py"):
            for call in ast.walk(ast.parse(path.read_text())):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "OnnxOperator":
                    given = {word.arg: word.value for word in call.keywords}
                    name, domain = call.args[0], given.get("domain")
                    if isinstance(name, ast.Constant):
                        found.add((_DOMAINS[domain.id] if isinstance(domain, ast.Name) else "", str(name.value)))
    return frozenset(found)


@cache
def standard() -> frozenset[str]:
    """The standard's operators that may be imported: declared, defined in terms of others, or holding graphs.

    Does not import TVM.
    """
    schemas = [schema for schema in defs.get_all_schemas_with_history() if schema.domain == ""]
    defined = {each.name for each in schemas if each.has_function or each.has_context_dependent_function}
    own = {name for domain, name in declared() if domain == ""}
    return frozenset(own | defined | _WITH_GRAPHS)
