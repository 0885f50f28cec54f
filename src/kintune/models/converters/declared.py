"""Names of the library's operators for those who do without TVM: read from the files' text."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from onnx import defs

from kintune.models import converters
from kintune.models.foreign_operators import ONNXRUNTIME_DOMAIN

__all__ = ["declared", "standard"]

_DOMAINS = {"STANDARD": "", "MICROSOFT": ONNXRUNTIME_DOMAIN}
"""What the names of domains in declarations mean."""


_WITH_GRAPHS = frozenset({"If", "Loop", "Scan"})
"""Operators that hold graphs; no converter gets them.  Many of them are written out node by node."""


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
