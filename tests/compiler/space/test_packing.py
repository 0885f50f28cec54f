"""The layouts in which programs want their weights: equal for equal ones, whatever the shape of the rest."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from kintune.errors import BuildError

pytestmark = pytest.mark.tvm

DEPTH, COLUMNS = 32, 48
REWRITE = re.compile(r"(\w+)\[(.*)\] = B\[v0, v1\]$", re.M)


def product(rows: int) -> Any:
    """A product of `rows` with one weight, whose layout a schedule may choose."""
    import tvm
    from tvm import te

    a, b = te.placeholder((rows, DEPTH), name="A"), te.placeholder((DEPTH, COLUMNS), name="B")
    k = te.reduce_axis((0, DEPTH), name="k")
    c = te.compute((rows, COLUMNS), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return tvm.IRModule({"main": te.create_prim_func([a, b, c]).with_attr("layout_free_buffers", [1])})


def packings(rows: int, count: int) -> list[tuple[str, str]]:
    """The names of the layouts of some programs, and how the programs themselves spell them."""
    import tvm

    from kintune.compiler.space.packing import packing_of
    from kintune.compiler.space.replay import apply_candidate
    from kintune.compiler.space.sketches import generate_sketches
    from kintune.runtime.target import resolve_target
    from kintune.search.evolve import draw

    target, module = tvm.target.Target(json.loads(resolve_target("native", 1))), product(rows)
    rng, found = np.random.default_rng(rows), []
    sketches = generate_sketches("w", module, target)
    while len(found) < count:
        sketch = sketches[int(rng.integers(len(sketches)))]
        try:
            scheduled = apply_candidate(module, sketch, draw(sketch, rng), target)
        except BuildError:
            continue
        text = str(scheduled.script())
        written = REWRITE.search(text)
        assert written is not None
        shape = re.search(rf"{written[1]} = T.sblock_alloc_buffer\((.*)\)", text)
        assert shape is not None
        found.append((packing_of(scheduled), f"{shape[1]} {written[2]}"))
    return found


def test_two_names_are_equal_where_the_layouts_are_also_across_shapes() -> None:
    found = packings(16, 12) + packings(24, 12)
    assert all(name for name, _ in found)
    assert len({name for name, _ in found}) > 2
    for name, spelled in found:
        assert all((name == other) == (spelled == others) for other, others in found)


def test_weights_that_are_taken_as_they_are_have_no_name() -> None:
    from kintune.compiler.space.packing import packing_of

    assert packing_of(product(16)) == ""
