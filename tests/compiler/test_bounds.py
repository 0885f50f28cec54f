from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.tvm

NAMES = "ijk"


class Term(NamedTuple):
    """An expression of loop variables: its text, and its value for their values."""

    text: str
    value: Callable[[Sequence[int]], int]

    def built(self, variables: Sequence[Any]) -> Any:
        from tvm import tirx

        names = dict(zip(NAMES, variables, strict=False))
        functions = {"least": tirx.min, "most": tirx.max, "div": tirx.floordiv, "mod": tirx.floormod}
        functions["choose"] = tirx.Select
        number = tirx.IntImm
        return eval(self.text, {**names, **functions, "c": lambda value: number("int64", value)})


def leaf(place: int) -> Term:
    return Term(NAMES[place], lambda at: at[place])


def constant(value: int) -> Term:
    return Term(f"c({value})", lambda _at: value)


def joined(operator: str, one: Term, other: Term) -> Term:
    value: dict[str, Callable[[int, int], int]] = {
        "+": lambda a, b: a + b,
        "-": lambda a, b: a - b,
        "*": lambda a, b: a * b,
        "least": min,
        "most": max,
    }
    text = f"({one.text} {operator} {other.text})" if operator in "+-*" else f"{operator}({one.text}, {other.text})"
    return Term(text, lambda at: value[operator](one.value(at), other.value(at)))


def scaled(one: Term, factor: int) -> Term:
    return Term(f"({one.text} * c({factor}))", lambda at: one.value(at) * factor)


def divided(one: Term, by: int, *, rest: bool) -> Term:
    name = "mod" if rest else "div"
    return Term(f"{name}({one.text}, c({by}))", lambda at: one.value(at) % by if rest else one.value(at) // by)


def chosen(one: Term, limit: int, other: Term, third: Term) -> Term:
    text = f"choose({one.text} < c({limit}), {other.text}, {third.text})"
    return Term(text, lambda at: other.value(at) if one.value(at) < limit else third.value(at))


leaves = st.one_of(st.builds(leaf, st.integers(0, 2)), st.builds(constant, st.integers(-3, 9)))
affine = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from("+-"), inner, inner), st.builds(scaled, inner, st.integers(-3, 4))
    ),
    max_leaves=5,
)
anything = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["+", "-", "*", "least", "most"]), inner, inner),
        st.builds(scaled, inner, st.integers(-3, 4)),
        st.builds(divided, inner, st.integers(1, 5), rest=st.booleans()),
        st.builds(chosen, inner, st.integers(-2, 8), inner, inner),
    ),
    max_leaves=6,
)
extents = st.tuples(*[st.integers(1, 7)] * 3)


class Nest(NamedTuple):
    """Loops around an access to an element of a buffer, in which a condition holds."""

    extents: tuple[int, int, int]
    index: Term
    size: int
    condition: tuple[Term, str, Term] | None = None

    def inside(self) -> bool:
        """Whether all accesses lie inside, by looking at each."""
        compare: dict[str, Callable[[int, int], bool]] = {
            "<": lambda a, b: a < b,
            ">=": lambda a, b: a >= b,
            "==": lambda a, b: a == b,
        }
        for at in itertools.product(*map(range, self.extents)):
            if self.condition is not None:
                one, how, other = self.condition
                if not compare[how](one.value(at), other.value(at)):
                    continue
            if not 0 <= self.index.value(at) < self.size:
                return False
        return True

    def function(self) -> Any:
        """The nest as a function of the buffer."""
        from tvm import tirx

        number = tirx.IntImm
        buffer = tirx.decl_buffer([number("int64", self.size)], "float32", "A")
        variables = [tirx.Var(name, "int64") for name in NAMES]
        body: Any = tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [self.index.built(variables)])
        if self.condition is not None:
            one, how, other = self.condition
            kinds = {"<": tirx.LT, ">=": tirx.GE, "==": tirx.EQ}
            body = tirx.IfThenElse(kinds[how](one.built(variables), other.built(variables)), body, None)
        for variable, extent in zip(variables, self.extents, strict=True):
            body = tirx.For(variable, number("int64", 0), number("int64", extent), tirx.ForKind.SERIAL, body)
        return tirx.PrimFunc([buffer], body)


def is_proven(function: Any) -> bool:
    from kintune.compiler.bounds import prove

    proof = prove(function)
    assert proof.accesses == 1
    return not proof.unproven


@given(st.builds(Nest, extents, affine, st.integers(1, 60), st.none()))
def test_sums_of_loop_variables_are_proven_exactly_where_they_lie_inside(nest: Nest) -> None:
    proven = is_proven(nest.function())
    assert not proven or nest.inside()
    once_each = all(nest.index.text.count(name) <= 1 for name in NAMES)
    assert proven or not once_each or not nest.inside()


conditions = st.tuples(affine, st.sampled_from(["<", ">=", "=="]), affine)


@given(st.builds(Nest, extents, anything, st.integers(1, 40), conditions))
def test_what_is_proven_lies_inside(nest: Nest) -> None:
    if is_proven(nest.function()):
        assert nest.inside()


class OpenNest(NamedTuple):
    """A nest whose first loop has as many steps as a tensor has elements: any number, which `k` is.

    The buffer has `size` elements, which depends on the number.
    """

    extent: int
    index: Term
    size: tuple[int, int]
    condition: tuple[Term, str, Term]

    def inside(self) -> bool:
        """Whether all accesses lie inside, for some numbers for which neither tensor is empty."""
        factor, more = self.size
        compare: dict[str, Callable[[int, int], bool]] = {
            "<": lambda a, b: a < b,
            ">=": lambda a, b: a >= b,
            "==": lambda a, b: a == b,
        }
        one, how, other = self.condition
        return all(
            0 <= self.index.value((i, j, k)) < factor * k + more
            for k in range(1, 26)
            if factor * k + more > 0
            for i, j in itertools.product(range(k), range(self.extent))
            if compare[how](one.value((i, j, k)), other.value((i, j, k)))
        )

    def function(self) -> Any:
        """The nest as a function of a tensor of so many elements, and of the buffer."""
        from tvm import tirx

        number = tirx.IntImm
        i, j, k = (tirx.Var(name, "int64") for name in NAMES)
        counted = tirx.decl_buffer([k], "float32", "counted")
        buffer = tirx.decl_buffer([k * number("int64", self.size[0]) + number("int64", self.size[1])], "float32", "A")
        one, how, other = self.condition
        kinds = {"<": tirx.LT, ">=": tirx.GE, "==": tirx.EQ}
        body: Any = tirx.BufferStore(buffer, tirx.const(0.0, "float32"), [self.index.built((i, j, k))])
        body = tirx.IfThenElse(kinds[how](one.built((i, j, k)), other.built((i, j, k))), body, None)
        for variable, extent in ((j, number("int64", self.extent)), (i, k)):
            body = tirx.For(variable, number("int64", 0), extent, tirx.ForKind.SERIAL, body)
        return tirx.PrimFunc([counted, buffer], body)


sizes = st.tuples(st.integers(0, 4), st.integers(-2, 5))


@given(st.builds(OpenNest, st.integers(1, 5), anything, sizes, conditions))
def test_what_is_proven_for_any_extent_lies_inside(nest: OpenNest) -> None:
    if is_proven(nest.function()):
        assert nest.inside()


@pytest.mark.parametrize("height", [1, 2, 4, 6, 14])
def test_tiles_of_rows_are_proven_for_any_number_of_rows(height: int) -> None:
    """Whole tiles, and the rest in halves: each writes rows from an offset on where a digit of the rest is one."""
    parts = [f"for i, r in T.grid(n // {height}, {height}):\n        b[i * {height} + r] = 0.0"]
    before, part = f"n // {height} * {height}", height // 2
    while part:
        digit = f"n % {height} // {part} % 2" if part < height else "0"
        parts.append(f"if {digit} == 1:\n        for r in T.serial({part}):\n            b[{before} + r] = 0.0")
        before, part = f"{before} + {digit} * {part}", 0
    lines = "\n    ".join(parts)
    head = "def main(a: T.handle, c: T.handle):\n    n = T.int64()\n    b = T.match_buffer(a, (n,), 'float32')"
    text = f"{head}\n    {lines}"
    assert unproven(text) == ()
    assert unproven(text.replace("b[i *", "b[1 + i *")) != ()


def function_of(text: str) -> Any:
    """A function without blocks, in TVM's script."""
    import tvm
    from tvm.script import tirx as T

    lines = "\n".join(f"    {line}" for line in text.strip().splitlines())
    source = f"@T.prim_func(private=True, s_tir=True)\n{lines.replace('    def', 'def', 1)}"
    return tvm.script.from_source(source, {"T": T})


def unproven(text: str, ranges: dict[int, tuple[int, int]] | None = None) -> tuple[str, ...]:
    from kintune.compiler.bounds import prove

    return prove(function_of(text), ranges).unproven


ROWS = """
def main(a: T.Buffer((197, 8), "float32"), b: T.Buffer((197, 8), "float32")):
    for i in T.parallel(13):
        for r in T.serial(T.min(16, 197 - i * 16)):
            for v in T.vectorized(8):
                b[i * 16 + r, v] = a[i * 16 + r{more}, v]
"""


def test_a_loop_whose_extent_is_a_minimum_is_proven() -> None:
    assert unproven(ROWS.format(more="")) == ()


def test_one_row_too_far_is_found() -> None:
    (line,) = unproven(ROWS.format(more=" + 1"))
    assert line.startswith("a[")
    assert "197" in line


GUARDED = """
def main(a: T.Buffer((100,), "float32"), b: T.Buffer((128,), "float32")):
    for i, j in T.grid(8, 16):
        if i * 16 + j {test}:
            b[i * 16 + j] = a[i * 16 + j]
        else:
            b[i * 16 + j] = a[i * 16 + j - 28]
"""


@pytest.mark.parametrize(("test", "number"), [("< 100", 0), ("<= 100", 1), ("< 99", 0), ("< 27", 1), ("< 28", 0)])
def test_conditions_count_on_both_sides(test: str, number: int) -> None:
    assert len(unproven(GUARDED.format(test=test))) == number


LOOKUP = """
def main(table: T.Buffer((50, 4), "float32"), at: T.Buffer((6,), "int64"), b: T.Buffer((6, 4), "float32")):
    for i, j in T.grid(6, 4):
        b[i, j] = table[{index}, j]
"""


@pytest.mark.parametrize(
    ("index", "number"),
    [
        ("at[i]", 1),
        ("T.min(T.max(at[i], T.int64(0)), T.int64(49))", 0),
        ("T.max(T.min(at[i], T.int64(49)), T.int64(0))", 0),
        ("T.min(T.max(at[i], T.int64(0)), T.int64(50))", 1),
        ("T.Select(at[i] < T.int64(0), at[i] + T.int64(50), at[i])", 1),
        ("T.Select(at[i] < T.int64(0) or at[i] > T.int64(49), T.int64(0), at[i])", 0),
        ("T.if_then_else(at[i] >= T.int64(0) and at[i] < T.int64(50), at[i], T.int64(49))", 0),
        ("at[i] % T.int64(50)", 0),
        ("at[i] % T.int64(51)", 1),
    ],
)
def test_a_lookup_is_proven_by_what_guards_its_index(index: str, number: int) -> None:
    assert len(unproven(LOOKUP.format(index=index))) == number


def test_a_lookup_is_proven_by_what_is_known_of_the_index() -> None:
    text = LOOKUP.format(index="at[i]")
    assert unproven(text, {1: (0, 49)}) == ()
    assert len(unproven(text, {1: (0, 50)})) == 1
    assert len(unproven(text, {1: (-1, 49)})) == 1
    wrapped = LOOKUP.format(index="T.Select(at[i] < T.int64(0), at[i] + T.int64(50), at[i])")
    assert unproven(wrapped, {1: (-50, 49)}) == ()


CHANGED = """
def main(table: T.Buffer((50,), "float32"), at: T.Buffer((6,), "int64"), b: T.Buffer((6,), "float32")):
    own = T.alloc_buffer((1,), "int64")
    for i in range(6):
        own[0] = at[i]
        if own[0] >= T.int64(0) and own[0] < T.int64(50):
            {between}
            b[i] = table[own[0]]
"""


def test_an_element_that_changes_is_not_what_a_condition_said() -> None:
    assert len(unproven(CHANGED.format(between="own[0] = own[0] + T.int64(1)"))) == 1


def test_a_load_under_a_choice_is_looked_at_where_it_is_made() -> None:
    text = """
def main(a: T.Buffer((10,), "float32"), b: T.Buffer((16,), "float32")):
    for i in range(16):
        b[i] = T.if_then_else(i < 10, a[i], T.float32(0)) + T.Select(i >= 6, a[i - 6], T.float32(0))
"""
    assert unproven(text) == ()
    assert len(unproven(text.replace("i >= 6", "i >= 5"))) == 1


def test_vectors_of_both_values_of_a_choice_are_loaded() -> None:
    """The compiler makes a choice of numbers a branch, and none of vectors."""
    text = """
def main(a: T.Buffer((10,), "float32"), b: T.Buffer((16,), "float32")):
    for i in T.vectorized(16):
        b[i] = T.Select(i < 10, a[i], T.float32(0))
"""
    assert len(unproven(text)) == 1
    assert unproven(text.replace("T.Select", "T.if_then_else")) == ()
    assert unproven(text.replace("T.vectorized", "T.serial")) == ()
    assert unproven(text.replace("a[i]", "a[T.min(i, 9)]")) == ()


def test_results_are_the_interval_of_what_is_stored() -> None:
    from kintune.compiler.bounds import prove

    text = """
def main(a: T.Buffer((9,), "int64"), b: T.Buffer((9,), "int64"), c: T.Buffer((9,), "int32")):
    for i in range(9):
        b[i] = T.min(T.max(a[i], T.int64(-3)), T.int64(7))
        c[i] = T.Select(a[i] < T.int64(0), i, 20)
"""
    proof = prove(function_of(text))
    assert proof.written == (1, 2)
    assert proof.results == {1: (-3, 7), 2: (0, 20)}


REGION = """
def main(a: T.Buffer((64,), "float32"), b: T.Buffer((64,), "float32")):
    for i in range(4):
        T.evaluate(T.call_extern(
            "int32", "f",
            T.tvm_access_ptr("float32", a.data, i * 16, {extent}, 1),
            T.tvm_access_ptr("uint8", b.data, i * 64, 64, 3)))
"""


def test_a_region_that_a_function_touches_is_proven() -> None:
    assert unproven(REGION.format(extent=16)) == ()
    assert unproven(REGION.format(extent=0)) == ()
    (line,) = unproven(REGION.format(extent=17))
    assert line.startswith("a, 17 elements from")


def test_an_address_without_a_region_is_not_proven() -> None:
    text = REGION.format(extent=16).replace('T.tvm_access_ptr("float32", a.data, i * 16, 16, 1)', "T.address_of(a[i])")
    (line,) = unproven(text)
    assert "without an extent" in line


ROWS_OF_A_KERNEL = """
def main(a: T.Buffer((20,), "float32"), w: T.Buffer((3,), "float32"), b: T.Buffer((20,), "float32")):
    for row in range(20):
        for i in range(T.min(3, 21 - row) - T.max(0, 1 - row)):
            b[row] = b[row] + a[T.max(row, 1) + i - 1{more}] * w[T.max(0, 1 - row) + i]
"""


def test_the_rows_of_a_kernel_that_meet_the_image_are_proven() -> None:
    assert unproven(ROWS_OF_A_KERNEL.format(more="")) == ()
    assert len(unproven(ROWS_OF_A_KERNEL.format(more=" + 1"))) == 1


@pytest.mark.parametrize(("more", "number"), [("", 0), (" + 1", 2)])
def test_a_loop_that_may_be_empty_has_a_positive_extent_inside(more: str, number: int) -> None:
    """A row of a kernel of one place, of which most results meet only zeros around the image."""
    text = f"""
def main(a: T.Buffer((2,), "float32"), w: T.Buffer((1,), "float32"), b: T.Buffer((42,), "float32")):
    for row in range(42):
        for i in range(T.max(T.min(1, 42 - row) - T.max(0, 40 - row){more}, 0)):
            b[row] = b[row] + a[row + T.max(0, 40 - row) + i - 40] * w[T.max(0, 40 - row) + i]
"""
    assert len(unproven(text)) == number


@pytest.mark.parametrize(("last", "number"), [(4, 0), (3, 1), (5, 1)])
def test_steps_of_both_directions_are_proven(last: int, number: int) -> None:
    text = f"""
def main(a: T.Buffer((5, 8), "float32")):
    for d, s, i in T.grid(2, 5, 8):
        a[s + d * ({last} - 2 * s), i] = T.float32(0)
"""
    assert len(unproven(text)) == number


@pytest.mark.parametrize(("extent", "number"), [(60, 0), (61, 2)])
def test_one_index_may_go_through_several_axes(extent: int, number: int) -> None:
    text = f"""
def main(a: T.Buffer((3, 4, 5), "float32"), b: T.Buffer((3, 4, 5), "float32")):
    for i in range({extent}):
        b[0, 0, i] = a[0, 0, i]
"""
    assert len(unproven(text)) == number


def test_what_is_not_equal_to_an_end_lies_inside_of_it() -> None:
    text = """
def main(a: T.Buffer((1,), "float32"), b: T.Buffer((1,), "float32"), c: T.Buffer((2,), "float32")):
    for i in range(2):
        c[i] = T.if_then_else(i == 1, b[i - 1], a[i])
"""
    assert unproven(text) == ()
    assert len(unproven(text.replace("i == 1", "i == 0"))) == 2


def test_a_truth_value_as_a_number_is_a_choice() -> None:
    text = LOOKUP.format(index='at[i] + T.Cast("int64", at[i] < T.int64(0)) * T.int64(50)')
    assert unproven(text, {1: (-50, 49)}) == ()
    assert len(unproven(text, {1: (-51, 49)})) == 1


def test_a_truth_value_times_an_open_extent_is_a_product() -> None:
    text = LOOKUP.format(index='at[i] + T.Cast("int64", at[i] < T.int64(0)) * T.Cast("int64", at[i + 1])')
    assert len(unproven(text, {1: (-50, 49)})) == 2


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("T.max(T.min(T.floor(x[i]), T.float32(9)), T.float32(0))", 0),
        ("T.max(T.min(T.floor(x[i]), T.float32(10)), T.float32(0))", 1),
        ("T.max(T.min(T.float32(9), x[i]), T.float32(0))", 0),  # of NaN and 0 the maximum is 0
        ("T.min(T.float32(9), T.max(T.float32(0), x[i]))", 1),  # and here it is NaN
        ("x[i]", 1),
    ],
)
def test_a_float_as_an_index_is_proven_where_it_is_clamped(value: str, number: int) -> None:
    text = f"""
def main(x: T.Buffer((4,), "float32"), a: T.Buffer((10,), "float32"), b: T.Buffer((4,), "float32")):
    for i in range(4):
        b[i] = a[T.Cast("int64", {value})]
"""
    assert len(unproven(text)) == number


def test_a_prefetch_may_lie_outside() -> None:
    text = """
def main(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    for i in range(16):
        T.evaluate(T.call_llvm_intrin("void", "llvm.prefetch", T.address_of(a[i + 16]), 0, 3, 1))
        b[i] = a[i]
"""
    assert unproven(text) == ()
