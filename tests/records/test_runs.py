"""A run is what it was made, but for what was changed since."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kintune.errors import RecordsError
from kintune.records import Run, RunState, Store

_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(RunState),
        "model_digest": st.text("ab", max_size=2),
        "active_seconds": st.integers(0, 9).map(float),
        "summary": st.binary(max_size=3),
    },
)


@settings(max_examples=40)
@given(
    made=st.lists(st.tuples(st.sampled_from(["key", "other"]), st.text("mn", max_size=2)), min_size=1, max_size=4),
    changes=st.lists(st.tuples(st.integers(0, 3), _CHANGES), max_size=8),
)
def test_runs_change_in_what_is_said_until_they_are_over(
    made: list[tuple[str, str]], changes: list[tuple[int, dict[str, Any]]]
) -> None:
    with Store.open(":memory:") as store:
        model: dict[str, Run] = {}
        for number, (key, name) in enumerate(made):
            seeds, versions = {"search": number}, {"kintune": name}
            run = store.runs.create(
                str(number), key=key, model_name=name, model_digest="d", spec=b"spec", seeds=seeds, versions=versions
            )
            assert (run.created, run.active_seconds, run.summary) == (run.updated, 0.0, None)
            assert (run.state, run.seeds, run.versions, run.spec) == (RunState.RUNNING, seeds, versions, b"spec")
            model[str(number)] = run
        for number, change in changes:
            before = model.get(str(number % len(made)))
            assert before is not None
            if before.state.final and change.get("state", before.state) is not before.state:
                with pytest.raises(RecordsError, match="cannot become"):
                    store.runs.update(before.run_id, **change)
                continue
            after = store.runs.update(before.run_id, **change)
            assert after.updated >= before.updated
            model[before.run_id] = msgspec.structs.replace(before, **change, updated=after.updated)
            assert after == model[before.run_id]
        latest = sorted(model.values(), key=lambda run: (run.created, run.run_id), reverse=True)
        assert store.runs.list() == tuple(latest)
        for run in latest:
            assert store.runs.get(run.run_id) == store.runs.find(run.run_id) == run
        assert store.runs.find("none") is None
        for key in ("key", "other", "none"):
            open_ones = [run for run in latest if run.key == key and not run.state.final]
            assert store.runs.find_unfinished(key) == (open_ones[0] if open_ones else None)
            passed = [run.run_id for run in open_ones[:1]]
            assert store.runs.find_unfinished(key, passed) == (open_ones[1] if len(open_ones) > 1 else None)


def test_without_anything_said_a_run_has_nothing() -> None:
    with Store.open(":memory:") as store:
        run = store.runs.create("run", key="key", model_name="model")
        assert (run.model_digest, run.spec, run.seeds, run.versions, run.summary) == ("", b"", {}, {}, None)
