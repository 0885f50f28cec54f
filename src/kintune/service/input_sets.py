"""Whether uploaded sets of inputs are inputs of a model: one rule for uploads, for jobs and for the portal's form."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from kintune.core.model import AnyShape
from kintune.service.model_store import Input
from kintune.service.portal.shape_words import spelled

__all__ = ["misfit", "misfit_in_job", "unpacked_bytes"]


def misfit(arrays: Sequence[Input], inputs: Sequence[Input]) -> str | None:
    """Why arrays cannot be inputs of a model, which may have others that are fixed; None where they can."""
    known = {each.name: each for each in inputs}
    strange = [each.name for each in arrays if each.name not in known]
    if strange or not arrays:
        return f"it has {', '.join(strange) or 'nothing'}, and the model takes {', '.join(known) or 'no inputs'}"
    for each in arrays:
        wanted = known[each.name]
        if not _fits(each.shape, wanted.shape):
            return f"its {each.name} is {spelled(each)}, and the model takes {spelled(wanted)}"
        if _is_text(each.dtype) != _is_text(wanted.dtype) and wanted.dtype != "unknown":
            return f"its {each.name} holds {each.dtype}, and the model takes {wanted.dtype}"
    return None


def misfit_in_job(
    arrays: Sequence[Input],
    inputs: Sequence[Input],
    combinations: Iterable[Mapping[str, AnyShape]],
    constants: Collection[str],
) -> str | None:
    """Why arrays cannot be all inputs of a model in a job with these shapes and constants; None where they can."""
    if (why := misfit(arrays, [each for each in inputs if each.name not in constants])) is not None:
        return why
    given = {each.name: each for each in arrays}
    if missing := [each.name for each in inputs if each.name not in given and each.name not in constants]:
        return f"it lacks {', '.join(missing)}, which the model takes"
    shapes = [dict(each) for each in combinations]
    if not any(
        all(_fits(given[name].shape, shape) for name, shape in each.items() if name in given) for each in shapes
    ):
        said = ", ".join(f"{name} is {spelled(given[name])}" for name in sorted({*given} & {*shapes[0]}))
        return f"its {said}, and the job is for other shapes"
    return None


def unpacked_bytes(arrays: Iterable[Input]) -> int:
    """How many bytes arrays take in memory."""
    sizes = [math.prod(extent or 0 for extent in each.shape) * np.dtype(each.dtype).itemsize for each in arrays]
    return sum(sizes)


def _fits(shape: Sequence[int | None], wanted: Sequence[int | range | None]) -> bool:
    pairs = zip(wanted, shape, strict=False)
    return len(shape) == len(wanted) and all(
        fixed is None or (extent in fixed if isinstance(fixed, range) else fixed == extent) for fixed, extent in pairs
    )


def _is_text(dtype: str) -> bool:
    return dtype == "string" or dtype.lstrip("<>|=").startswith(("U", "S"))
