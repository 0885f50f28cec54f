"""What an earlier job may have learnt of other toy workloads."""

from __future__ import annotations

import numpy as np

from kintune.core.candidate import digest_of
from kintune.core.knowledge import Knowledge, KnownModel, KnownProgram, ModelVersion
from kintune.search.cost_model import Trees
from kintune.testing.synthetic_space import MatMul, SyntheticSpace

__all__ = ["toy_knowledge"]

_TRIED = 16  # candidates of the rule
_GOOD = 3


def toy_knowledge(*products: MatMul) -> Knowledge:
    """The best programs that the rule has for these products, and one model of all of them for each operator."""
    space = SyntheticSpace(products)
    programs: list[KnownProgram] = []
    samples: dict[str, list[tuple[np.ndarray, float]]] = {}
    for product in products:
        sketches = {sketch.digest: sketch for sketch in space.sketches(product.name)}
        drafts = [draft for draft in space.verify(space.rules(product.name, _TRIED)) if draft is not None]
        times = [space.measure(draft.candidate).median_us for draft in drafts]
        best = min(times)
        ranked = sorted(zip(times, drafts, strict=True), key=lambda pair: pair[0])
        for time, draft in ranked[:_GOOD]:
            sketch = sketches[draft.candidate.sketch]
            programs.append(KnownProgram(product.subject, sketch, draft.candidate, best / time))
        rows = samples.setdefault(product.operator, [])
        rows += [(draft.features, best / time) for time, draft in zip(times, drafts, strict=True)]
    models = []
    for operator, rows in sorted(samples.items()):
        features, labels = np.stack([row for row, _ in rows]), np.array([label for _, label in rows], np.float32)
        blob = Trees.train(features, labels, seed=0, threads=1).to_bytes()
        version = ModelVersion(digest_of(blob), f"op:{operator}", "", "toy-features", len(rows))
        models.append(KnownModel(version, blob, tuple(p.subject for p in products if p.operator == operator)))
    return Knowledge(tuple(programs), tuple(models))
