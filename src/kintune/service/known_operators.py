"""Operators that are known to run in onnxruntime, since nothing imports them: told when a model is handed in.

This needs no compiler, so a page can show it at once.  Whether a model's other operators compile is found when a job
begins.
"""

from __future__ import annotations

from collections.abc import Mapping

from kintune.models.converters.declared import declared, standard

__all__ = ["left_to_onnxruntime"]


def left_to_onnxruntime(operators: Mapping[str, int]) -> dict[str, int]:
    """Returns those of the operators that will run in onnxruntime, with how often each occurs.

    Names are as an inspection has them, with the domain before those that are not ONNX's own.
    """
    return {name: times for name, times in operators.items() if not _may_be_imported(name)}


def _may_be_imported(name: str) -> bool:
    domain, _, operator = name.rpartition(".")
    return operator in standard() if domain in ("", "ai.onnx") else (domain, operator) in declared()
