"""The page that describes the REST API, made from its OpenAPI document: it loads nothing, and needs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = ["api_page"]

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; color-scheme: light dark }
details { border-top: 1px solid #8886; padding: .5rem 0 }
summary { cursor: pointer }
pre { overflow-x: auto; background: #8882; padding: .5rem }
code { overflow-wrap: anywhere }
"""


def api_page(document: Mapping[str, Any]) -> str:
    """Returns the page: each request with its parameters, its body and its answers, then the documents they name."""
    title = escape(f"{document['info']['title']} {document['info']['version']}: REST API")
    parts = [f"<h1>{title}</h1>", _ABOUT]
    for path, methods in document["paths"].items():
        parts += [_operation(method, path, each) for method, each in methods.items()]
    parts.append("<h2>Documents</h2>")
    for name, schema in document.get("components", {}).get("schemas", {}).items():
        body = f"<p>{escape(schema.get('description', ''))}</p><pre>{escape(json.dumps(schema, indent=1))}</pre>"
        parts.append(f'<details id="{escape(name)}"><summary>{escape(name)}</summary>{body}</details>')
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


_ABOUT = (
    "<p>Send a token as <code>Authorization: Bearer kt_...</code>. Errors are JSON documents with <code>error</code>, "
    'a line, and <code>kind</code>. <a href="/openapi.json">The same for programs</a>.</p>'
)


def _operation(method: str, path: str, each: Mapping[str, Any]) -> str:
    parts = [f"<p>{escape(each.get('description', ''))}</p>"]
    for parameter in each.get("parameters", ()):
        about = parameter.get("description") or parameter["schema"].get("description", "")
        needed = ", needed" if parameter.get("required") else ""
        parts.append(
            f"<p><code>{escape(parameter['name'])}</code> ({escape(parameter['in'] + needed)}) {escape(about)}</p>"
        )
    if "requestBody" in each:
        parts.append(f"<p>Body: {', '.join(_contents(each['requestBody'])) or 'a document'}</p>")
    for status, answer in each.get("responses", {}).items():
        parts.append(
            f"<p>{escape(status)}: {', '.join(_contents(answer)) or escape(answer.get('description', ''))}</p>"
        )
    name = f"<code>{escape(method.upper())} {escape(path)}</code> {escape(each.get('summary', ''))}"
    return f"<details><summary>{name}</summary>{''.join(parts)}</details>"


def _contents(of: Mapping[str, Any]) -> Iterator[str]:
    for kind, content in of.get("content", {}).items():
        name = str(content.get("schema", {}).get("$ref", "")).rpartition("/")[2]
        yield f'<a href="#{escape(name)}">{escape(name)}</a>' if name else escape(kind)
