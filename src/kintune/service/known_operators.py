"""Operators that are known to run in onnxruntime, since nothing imports them: told when a model is handed in.

This needs no compiler, so a page can show it at once.  Whether a model's other operators compile is found when a job
begins.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["LEFT", "left_to_onnxruntime"]

LEFT = frozenset({
    "ImageDecoder", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
})  # fmt: skip
"""ONNX's own operators that are not imported.  Loops are not among them: many are written out step by step."""

_DOMAINS = ("com.microsoft", "ai.onnx")


def left_to_onnxruntime(operators: Mapping[str, int]) -> dict[str, int]:
    """Returns those of the operators that will run in onnxruntime, with how often each occurs.

    Names are as an inspection has them, with the domain before those that are not ONNX's own; operators of unknown
    domains run in onnxruntime as well.
    """
    return {name: times for name, times in operators.items() if name in LEFT or _is_foreign(name)}


def _is_foreign(name: str) -> bool:
    domain, dot, _ = name.rpartition(".")
    return bool(dot) and domain not in _DOMAINS
