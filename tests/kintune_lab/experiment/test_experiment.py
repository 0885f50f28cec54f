from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kintune_lab.experiment.experiment import Cell, Method
from kintune_lab.experiment.option import Value

VALUES = st.dictionaries(st.text(max_size=3), st.one_of(st.integers(), st.booleans(), st.text(max_size=3)), max_size=4)


def cell(changed: dict[str, Value], **other: object) -> Cell:
    return Cell(experiment="fake", version=1, values={}, changed=changed, **other)  # type: ignore[arg-type]


@given(VALUES, st.randoms())
def test_the_id_does_not_depend_on_the_order_of_options(changed: dict[str, Value], random: object) -> None:
    shuffled = list(changed.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert cell(changed).id == cell(dict(shuffled)).id


@given(VALUES, VALUES)
def test_other_values_are_another_cell(one: dict[str, Value], other: dict[str, Value]) -> None:
    def typed(values: dict[str, Value]) -> set[tuple[str, type, Value]]:
        return {(name, type(value), value) for name, value in values.items()}

    assert (cell(one).id == cell(other).id) == (typed(one) == typed(other))


def test_what_a_cell_is_goes_into_its_id_and_what_it_is_called_does_not() -> None:
    method = Method("two", "two", {"width": 2}, {"width": 2})
    base = cell({"seed": 1}, methods=(method,))
    assert base.id == cell({"seed": 1}, methods=(Method("two", "ours", {"width": 2}, {"width": 2}),), title="x").id
    others = [
        cell({"seed": 1}),
        cell({"seed": 1}, methods=(Method("two", "two", {"width": 3}, {"width": 3}),)),
        cell({"seed": 1}, methods=(method, Method("one", "one"))),
        cell({"seed": 1}, methods=(method,), contents={"a.onnx": "0"}),
        Cell(experiment="fake", version=2, values={}, changed={"seed": 1}, methods=(method,)),
    ]
    assert len({base.id, *(other.id for other in others)}) == len(others) + 1
