"""Records that toy jobs fill, one after the other, and learn from."""

from __future__ import annotations

import msgspec

from kintune.core.config import JobSpec
from kintune.core.knowledge import TrainingConditions
from kintune.records import Store
from kintune.testing.synthetic_space import MatMul, SyntheticSpace
from kintune.tuning.front.journal import TuningJournal
from tests.support.rehearsal import Cast, Rehearsal
from tests.support.toy_tools import ToyTools, toy_spec

__all__ = ["COMPILER", "CONDITIONS", "FEATURES", "ToyRecords"]

COMPILER = "tvm 0"
FEATURES = "toy-features"
CONDITIONS = TrainingConditions(toy_spec().device_type.digest, COMPILER, FEATURES)


class ToyRecords:
    """A store, and toy jobs over it whose networks are lists of products."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def tune(self, *products: MatMul, spec: JobSpec | None = None, use_known: bool = True) -> Rehearsal:
        """Tune a network of these products, by default as a run of its own; `use_known` False is a fresh one."""
        spec = spec or toy_spec()
        spec = msgspec.structs.replace(spec, run_id=f"run{len(self.store.runs.list())}")
        self.store.runs.create(spec.run_id, key=spec.run_id, model_name="toy", spec=msgspec.msgpack.encode(spec))
        journal = TuningJournal(self.store, FEATURES)
        journal.enter(spec, COMPILER, use_known=use_known)
        space = SyntheticSpace(products)
        return Rehearsal(lambda: ToyTools(space=space), spec, Cast(space), journal=journal).run()
