"""What the readers of kernels say of a kernel is what the kernel computes; what they cannot say, they do not claim.

The kernels are drawn with defects that a reader must see: an index off by one or turned round, a tensor read twice,
axes in another order, another type, another start of the sum.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.convolutions import Case, workload
from tests.support.interpreter import evaluate, interpreted
from tests.support.sums import SUMS, BytesOfImage, FewBits

pytestmark = pytest.mark.tvm


class Sum(msgspec.Struct, frozen=True):
    """A sum of products as a convolution has it, or nearly so.

    `images`, `rows` and `columns` are those of the result.  `slack` are rows and columns of the data beyond those that
    are read.  `axes` are the places of (i, j, c, f) among the weights' axes.  `channels` says what the channel of the
    data is: that of the reduction ("dense"), of the filter ("depthwise"), or both with an axis of groups ("grouped").
    """

    images: int = 1
    rows: int = 3
    columns: int = 4
    depth: int = 3
    filters: int = 5
    kernel: tuple[int, int] = (3, 3)
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    slack: tuple[int, int] = (0, 0)
    pads: tuple[int, int, int, int] | None = None
    axes: tuple[int, int, int, int] = (0, 1, 2, 3)
    channels: str = "dense"
    defect: str = ""
    swapped: bool = False
    bias: bool = False


DEFECTS = (
    *("row late", "column late", "row turned round", "column turned round", "rows for columns", "channel late"),
    *("weights read again", "data read again", "no weights", "float64", "starts at one", "a difference", "no product"),
    *("places swapped", "filters halved", "one channel less", "padded with ones", "padding read twice", "image late"),
    *("padded channels", "padded images"),
)


def module_of(case: Sum) -> Any:
    import tvm
    from tvm import te, topi

    dtype = "float64" if case.defect == "float64" else "float32"
    tall, wide = case.kernel
    late = {
        "row late": (0, 1, 0, 0),
        "column late": (0, 0, 1, 0),
        "channel late": (0, 0, 0, 1),
        "image late": (1, 0, 0, 0),
    }
    shift = late.get(case.defect, (0, 0, 0, 0))
    height = (case.rows - 1) * case.stride[0] + (tall - 1) * case.dilation[0] + 1 + case.slack[0] + shift[1]
    width = (case.columns - 1) * case.stride[1] + (wide - 1) * case.dilation[1] + 1 + case.slack[1] + shift[2]
    grouped = case.channels == "grouped"
    lead = (2,) if grouped else ()
    of_data = case.filters if case.channels == "depthwise" else case.depth
    of_data += shift[3] + (case.defect == "one channel less")
    pads = case.pads or (0, 0, 0, 0)
    if case.pads is not None:
        of_data -= case.defect == "padded channels"
        shift = (shift[0] - (case.defect == "padded images"), *shift[1:])
    inner = (case.images + shift[0], height - pads[0] - pads[2], width - pads[1] - pads[3], *lead, of_data)
    data = te.placeholder(inner, dtype, "data")
    around = data
    if case.pads is not None:
        nothing = (0,) * len(lead) + (0,)
        value = 1.0 if case.defect == "padded with ones" else 0.0
        more = int(case.defect == "padded images"), int(case.defect == "padded channels")
        after = (more[0], *pads[2:], *nothing[:-1], more[1])
        around = topi.nn.pad(data, (0, *pads[:2], *nothing), after, pad_value=value, name="pad_temp")
    sizes: dict[int, int] = dict(zip(case.axes, (tall, wide, case.depth, case.filters), strict=True))
    if case.channels == "depthwise":
        del sizes[case.axes[2]]
    shape = [sizes[axis] for axis in sorted(sizes)]
    weight = te.placeholder((*shape, *lead), dtype, "weight")
    i, j = te.reduce_axis((0, tall), "i"), te.reduce_axis((0, wide), "j")
    c = te.reduce_axis((0, case.depth), "c")
    halves = 2 if case.defect == "filters halved" else 1

    def product(n: Any, h: Any, w: Any, *rest: Any) -> Any:
        group, f = rest[:-1], rest[-1]
        row = h * case.stride[0] + (tall - 1 - i if case.defect == "row turned round" else i) * case.dilation[0]
        column = w * case.stride[1] + (wide - 1 - j if case.defect == "column turned round" else j) * case.dilation[1]
        if case.defect == "rows for columns":
            row, column = column, row
        channel = f if case.channels == "depthwise" else c
        read = around[(n + max(0, shift[0]), row + shift[1], column + shift[2], *group, channel + shift[3])]
        first, second = (j, i) if case.defect == "places swapped" else (i, j)
        by_axis = dict(zip(case.axes, (first, second, c, f // halves), strict=True))
        if case.channels == "depthwise":
            del by_axis[case.axes[2]]
        by = weight[(*(by_axis[axis] for axis in sorted(by_axis)), *group)]
        if case.defect == "weights read again":
            by = by + by
        if case.defect == "a difference":
            return read - by
        if case.defect == "no product":
            return read * read
        return by * read if case.swapped else read * by

    over = [i, j] if case.channels == "depthwise" else [i, j, c]
    start = 1.0 if case.defect == "starts at one" else 0.0
    total = te.comm_reducer(lambda a, b: a + b, lambda kind: tvm.tirx.const(start, kind), name="total")
    result_shape = (case.images, case.rows, case.columns, *lead, case.filters)
    found = te.compute(result_shape, lambda *at: total(product(*at), axis=over), name="conv")
    if case.defect == "data read again":
        found = te.compute(result_shape, lambda *at: found[at] + data[(0, 0, 0, *at[3:-1], 0)], name="again")
    if case.defect == "padding read twice":
        found = te.compute(result_shape, lambda *at: found[at] + around[(0, 0, 0, *at[3:-1], 0)], name="again")
    if case.bias:
        found = te.compute(result_shape, lambda *at: found[at] + tvm.tirx.const(2.0, dtype), name="bias")
    function = te.create_prim_func([data, weight, found], index_dtype_override="int64").with_attr(
        "global_symbol", "main"
    )
    marks = [] if case.defect == "no weights" else [1]
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", marks)})


def arrays_of(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    return {
        str(parameter.name): random.integers(-9, 10, [int(extent) for extent in parameter.shape]).astype(float)
        for parameter in module["main"].params[:-1]
    }


def check_weighted_sum(module: Any, kind: str) -> bool:
    """Whether a sum is recognised; what is said of it must be what is computed."""
    from kintune.compiler.kernels.contraction import DEPTHWISE, GROUPED
    from kintune.compiler.kernels.reading import find

    found = find(module, kinds=(kind,))
    if found is None:
        return False
    arrays = arrays_of(module)
    memory = interpreted(module, arrays)
    data, weights = arrays[str(found.data.name)], arrays[str(found.weights.name)]
    assert module["main"].params[found.position].same_as(found.weights)
    computed = memory[str(found.result.name)]
    rows, columns, channels = found.rows, found.columns, found.channels
    groups = found.groups
    if kind != GROUPED:
        computed = computed[..., None, :]
    width = computed.shape[-1]
    image = data.reshape(found.images, rows.size, columns.size, groups, channels)
    results = computed.reshape(found.images, rows.results, columns.results, groups, width)
    assert (width, found.positions * found.filters) == (found.filters, computed.size)
    constants: dict[Any, Any] = {found.weights: weights}
    import tvm

    def number(value: int) -> Any:
        return tvm.tirx.const(value, "int64")

    expected = np.zeros_like(results)
    kernel = itertools.product(range(rows.kernel), range(columns.kernel))
    for (i, j), f, g in itertools.product(kernel, range(width), range(groups)):
        for c in [f] if kind == DEPTHWISE else range(channels):
            by = evaluate(found.weight(*map(number, (i, j, 0 if kind == DEPTHWISE else c, f, g))), {}, constants)
            for x, y in itertools.product(range(rows.results), range(columns.results)):
                row = x * rows.stride + i * rows.dilation - rows.before
                column = y * columns.stride + j * columns.dilation - columns.before
                if 0 <= row < rows.size and 0 <= column < columns.size:
                    expected[:, x, y, g, f] += image[:, row, column, g, c] * by
    np.testing.assert_array_equal(expected, results)
    assert min(rows.stride, rows.dilation, columns.stride, columns.dilation) >= 1
    places = rows.kernel * columns.kernel * (1 if kind == DEPTHWISE else channels)
    assert found.flops == 2.0 * results.size * places
    assert found.is_direct == (
        rows.kernel == columns.kernel == 1
        and not rows.before
        and not columns.before
        and (rows.results - 1) * rows.stride < rows.size
        and (columns.results - 1) * columns.stride < columns.size
    )
    if found.is_matrix:
        assert (rows.size, rows.results, rows.kernel, columns.kernel) == (1, 1, 1, 1)
    return True


def sums(channels: str = "dense") -> st.SearchStrategy[Sum]:
    return st.builds(
        Sum,
        images=st.integers(1, 2),
        rows=st.integers(1, 3),
        columns=st.integers(1, 3),
        depth=st.integers(1, 3),
        filters=st.sampled_from([1, 2, 3]),
        kernel=st.sampled_from([(3, 3), (3, 3), (1, 1), (1, 3), (2, 1), (3, 2)]),
        stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        dilation=st.tuples(st.integers(1, 2), st.integers(1, 2)),
        slack=st.tuples(st.integers(0, 1), st.integers(0, 1)),
        pads=st.none() | st.tuples(*[st.integers(0, 1)] * 4),
        axes=st.sampled_from([(0, 1, 2, 3), (0, 1, 2, 3), (1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)]),
        channels=st.just(channels),
        defect=st.sampled_from(["", "", "", *DEFECTS]),
        swapped=st.booleans(),
        bias=st.booleans(),
    ).filter(is_possible)


def is_possible(case: Sum) -> bool:
    """Whether there is such a kernel."""
    pads = case.pads or (0, 0, 0, 0)
    tall, wide = case.kernel
    height = (case.rows - 1) * case.stride[0] + (tall - 1) * case.dilation[0] + 1 + case.slack[0]
    width = (case.columns - 1) * case.stride[1] + (wide - 1) * case.dilation[1] + 1 + case.slack[1]
    if case.defect == "rows for columns" and height != width:
        return False
    if (case.defect == "padded channels" and case.depth == 1) or (case.defect == "padded images" and case.images == 1):
        return False
    if case.defect == "padded channels" and case.channels == "depthwise":
        return False
    if case.defect == "places swapped" and tall != wide:
        return False
    if case.defect.startswith("padd") and not any(pads):
        return False
    return height > pads[0] + pads[2] and width > pads[1] + pads[3]


MOSTLY = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@MOSTLY
@given(sums())
def test_a_sum_is_what_its_reading_says(case: Sum) -> None:
    """A matrix with zeros around it is not recognised: its rows would have to be numbered anew."""
    known = check_weighted_sum(module_of(case), "dense")
    is_padded_matrix = case.kernel == (1, 1) and any(case.pads or ())
    assert known or case.defect or case.axes != (0, 1, 2, 3) or is_padded_matrix


@MOSTLY
@given(sums("depthwise"))
def test_a_sum_of_each_channel_is_what_its_reading_says(case: Sum) -> None:
    module = module_of(case)
    assert not check_weighted_sum(module, "dense") or case.kernel == (1, 1) or case.filters == 1
    known = check_weighted_sum(module, "depthwise")
    assert known or case.defect or case.axes != (0, 1, 2, 3) or case.filters == 1


@MOSTLY
@given(sums("grouped"))
def test_a_sum_of_groups_is_what_its_reading_says(case: Sum) -> None:
    known = check_weighted_sum(module_of(case), "grouped")
    assert known or case.defect or case.axes != (0, 1, 2, 3)


_TERMS = ("x", "y", "x * 2 + y", "x * 3 - y + 2", "x // 2", "x % 2", "x * y", "(x * 4 + y * 2) // 2", "x + x // 4", "7")


@pytest.mark.parametrize("term", _TERMS)
def test_what_is_linear_is_the_sum_of_its_multiples(term: str) -> None:
    import tvm

    from kintune.compiler.kernels.reading import linear

    x, y = tvm.tirx.Var("x", "int32"), tvm.tirx.Var("y", "int32")
    index = eval(term, {}, {"x": x, "y": y})
    found = linear(tvm.tirx.const(index, "int32") if isinstance(index, int) else index, [x, y])
    values = {(a, b): eval(term, {}, {"x": a, "y": b}) for a in range(6) for b in range(6)}
    if found is None:
        by_x, by_y = values[1, 0] - values[0, 0], values[0, 1] - values[0, 0]
        assert any(value != values[0, 0] + a * by_x + b * by_y for (a, b), value in values.items()) or "//" in term
    else:
        constant, (by_x, by_y) = found
        assert all(value == constant + a * by_x + b * by_y for (a, b), value in values.items())
    assert (found is None) == (term in ("x // 2", "x % 2", "x * y", "x + x // 4"))


Index = dict[str, int]
"""Multiples of variables by name; that of "1" is added."""


class Loose(msgspec.Struct, frozen=True):
    """A sum of products whose indices are drawn: those of `extents` that begin with a small letter are summed over."""

    extents: dict[str, int]
    data: list[Index]
    weights: list[Index]
    more: tuple[int, int]  # an axis of the data and one of the weights that are longer by one; -1: none


@st.composite
def loose_sums(draw: Any) -> Loose:
    """A sum of one of the kinds in which one index or two are not as they should be."""
    kind = draw(st.sampled_from(["dense", "depthwise", "grouped"]))
    names = [*"NHW", *("G" if kind == "grouped" else ""), "F", "i", "j", *("c" if kind != "depthwise" else "")]
    extents = {name: draw(st.sampled_from([1, 2, 3, 3] if name in "ij" else [1, 2, 3])) for name in names}
    row = {"H": draw(st.integers(1, 2)), "i": draw(st.integers(1, 2))}
    channel = {"F": 1} if kind == "depthwise" else {"c": 1}
    data: list[Index] = [{"N": 1}, row, {"W": 1, "j": 1}, *([{"G": 1}] if kind == "grouped" else []), channel]
    weights: list[Index] = [{name: 1} for name in ("i", "j", *("c" if kind != "depthwise" else ""), "F")]
    weights += [{"G": 1}] if kind == "grouped" else []
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
        of = draw(st.sampled_from([data, data, weights]))
        at, name = draw(st.integers(0, len(of) - 1)), draw(st.sampled_from([*names, "1"]))
        change = draw(
            st.sampled_from(["without", "without", "another", "besides", "more", "nothing", "axis", "no axis", "order"])
        )
        index = dict(of[at])
        if change == "another":
            index = {name: 1}
        elif change == "besides":
            index[name] = index.get(name, 0) + draw(st.sampled_from([-1, 1, 2]))
        elif change == "more":
            index = {each: 2 * by for each, by in index.items()}
        elif change == "without" and index:
            index.pop(draw(st.sampled_from(sorted(index))))
        elif change == "nothing":
            index = {}
        if change == "axis":
            of.insert(at, {name: 1})
        elif change == "no axis" and len(of) > 1:
            del of[at]
        elif change == "order":
            of.insert(0, of.pop(at))
        else:
            of[at] = index
    longer = draw(st.sampled_from([0, 1, 2, 2, 2, 2]))  # one of the data's axes, one of the weights', or none
    more = (
        draw(st.integers(0, len(data) - 1)) if longer == 0 else -1,
        draw(st.integers(0, len(weights) - 1)) if longer == 1 else -1,
    )
    return Loose(extents, data, weights, more)


def loose_module(case: Loose) -> Any:
    import tvm
    from tvm import te

    reduced = {name: te.reduce_axis((0, extent), name) for name, extent in case.extents.items() if name.islower()}

    def shape(of: list[Index], longer: int) -> list[int] | None:
        """The extents that the indices need; None where one may be negative."""
        found = []
        for at, index in enumerate(of):
            ends = [by * (case.extents.get(name, 2) - 1) for name, by in index.items()]
            if sum(min(0, end) for end in ends) < 0:
                return None
            found.append(1 + sum(ends) + (at == longer))
        return found

    shapes = shape(case.data, case.more[0]), shape(case.weights, case.more[1])
    if shapes[0] is None or shapes[1] is None:
        return None
    data, weight = te.placeholder(shapes[0], "float32", "data"), te.placeholder(shapes[1], "float32", "weight")

    def product(*at: Any) -> Any:
        kept = (name for name in case.extents if name.isupper())
        variables = {**dict(zip(kept, at, strict=True)), **{name: axis.var for name, axis in reduced.items()}}

        def value(index: Index) -> Any:
            terms = [by if name == "1" else variables[name] * by for name, by in index.items() if by]
            return sum(terms[1:], terms[0]) if terms else tvm.tirx.const(0, "int64")

        return data[tuple(map(value, case.data))] * weight[tuple(map(value, case.weights))]

    over = list(reduced.values())
    kept_extents = [extent for name, extent in case.extents.items() if name.isupper()]
    result = te.compute(kept_extents, lambda *at: te.sum(product(*at), axis=over), name="conv")
    function = te.create_prim_func([data, weight, result], index_dtype_override="int64").with_attr(
        "global_symbol", "main"
    )
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", [1])})


@settings(MOSTLY, max_examples=400)
@given(loose_sums())
def test_whatever_a_sum_reads_its_reading_says_so_or_nothing(case: Loose) -> None:
    module = loose_module(case)
    if module is not None:
        for kind in ("dense", "depthwise", "grouped"):
            check_weighted_sum(module, kind)


EXTENTS = {"N": 1, "H": 2, "W": 3, "F": 2, "i": 2, "j": 3, "c": 2}
ROW, COLUMN, CHANNEL = {"H": 1, "i": 1}, {"W": 1, "j": 1}, {"c": 1}
DATA: list[Index] = [{"N": 1}, ROW, COLUMN, CHANNEL]
WEIGHTS: list[Index] = [{"i": 1}, {"j": 1}, {"c": 1}, {"F": 1}]


@pytest.mark.parametrize(
    ("extents", "data", "weights", "known"),
    [
        ({}, DATA, WEIGHTS, True),
        ({}, [{}, *DATA[1:]], WEIGHTS, True),  # there is one image
        ({"N": 2}, [{}, *DATA[1:]], WEIGHTS, False),
        ({}, [{"1": 1}, *DATA[1:]], WEIGHTS, False),
        ({}, [{"N": 1}, {"H": 1}, COLUMN, CHANNEL], WEIGHTS, False),  # nothing else has another number of products
        ({"j": 1}, [{"N": 1}, {"H": 1}, COLUMN, CHANNEL], WEIGHTS, False),
        ({"i": 1, "j": 1}, [{"N": 1}, {"H": 1}, {"W": 1}, CHANNEL], WEIGHTS, True),
        ({}, [{"N": 1}, {"i": 1}, COLUMN, CHANNEL], WEIGHTS, False),
        ({"i": 3}, [{"N": 1}, ROW, {"W": 1, "i": 1}, CHANNEL], WEIGHTS, False),
        ({"i": 1, "j": 1}, DATA, WEIGHTS[2:], True),
        ({"i": 1}, DATA, WEIGHTS[1:], True),
        ({}, DATA, WEIGHTS[1:], False),
        ({"i": 3}, DATA, WEIGHTS[1:], False),
        ({"F": 1}, DATA, WEIGHTS[:3], False),
        ({}, DATA, [*WEIGHTS[:2], {"c": 1}, *WEIGHTS[2:]], False),
        ({"j": 2}, DATA, [{"i": 1}, {"i": 1}, *WEIGHTS[2:]], False),
        ({"i": 3, "j": 1}, [{"N": 1}, ROW, {"W": 1, "i": 1}, CHANNEL], WEIGHTS, False),
        ({"j": 1}, [{"N": 1}, ROW, {"W": 1}, CHANNEL], WEIGHTS, True),
        ({"H": 3, "i": 1, "j": 1}, [{"N": 1}, {"H": 2}, {"W": 2}, CHANNEL], WEIGHTS, True),
        ({}, [{"N": 1}, {"H": 1, "F": 1, "i": 1}, COLUMN, CHANNEL], WEIGHTS, False),
        ({"N": 2, "i": 1, "j": 1}, [{"N": 1}, CHANNEL], WEIGHTS[2:], False),
        ({"i": 1}, DATA, [{}, *WEIGHTS[1:]], True),
    ],
)
def test_sums_that_are_nearly_convolutions(
    extents: dict[str, int], data: list[Index], weights: list[Index], known: bool
) -> None:
    from kintune.compiler.kernels.reading import find

    module = loose_module(Loose({**EXTENTS, **extents}, data, weights, (-1, -1)))
    assert check_weighted_sum(module, "dense") == known
    if extents == {"i": 1, "j": 1}:
        found = find(module)
        assert found is not None
        assert found.is_matrix


@pytest.mark.parametrize(
    ("extents", "data", "weights", "longer"),
    [
        ({"N": 2}, [{}, *DATA[1:]], WEIGHTS, (0, -1)),
        ({"i": 1}, DATA, [{}, *WEIGHTS[1:]], (-1, 0)),
    ],
)
def test_what_reads_the_first_of_several_alone_is_no_convolution(
    extents: dict[str, int], data: list[Index], weights: list[Index], longer: tuple[int, int]
) -> None:
    assert not check_weighted_sum(loose_module(Loose({**EXTENTS, **extents}, data, weights, longer)), "dense")


@pytest.mark.parametrize(
    ("channel", "group", "known"), [("c", "G", True), ("c", "W", False), ("c", "H", False), ("F", "G", False)]
)
def test_groups_are_an_axis_of_the_data_the_weights_and_the_result(channel: str, group: str, known: bool) -> None:
    extents = {"N": 1, "H": 3, "W": 3, "G": 3, "F": 2, "i": 2, "j": 2, **({"c": 2} if channel == "c" else {})}
    of_channel: list[Index] = [{"c": 1}] if channel == "c" else []
    weights: list[Index] = [{"i": 1}, {"j": 1}, *of_channel, {"F": 1}, {group: 1}]
    module = loose_module(Loose(extents, [{"N": 1}, ROW, COLUMN, {"G": 1}, {channel: 1}], weights, (-1, -1)))
    assert check_weighted_sum(module, "grouped") == known
    assert not check_weighted_sum(module, "dense")
    assert not check_weighted_sum(module, "depthwise")


@pytest.mark.parametrize(("step", "known"), [(1, True), (2, False)])
def test_a_product_for_each_row_of_an_image_reads_all_columns(step: int, known: bool) -> None:
    from kintune.compiler.kernels.contraction import BATCHED
    from kintune.compiler.kernels.reading import find

    extents = {"N": 2, "H": 2, "W": 3, "F": 2, "c": 2}
    data, weights = [{"N": 1}, {"H": 1}, {"W": step}, CHANNEL], [{"N": 1}, {"H": 1}, CHANNEL, {"F": 1}]
    module = loose_module(Loose(extents, data, weights, (-1, -1)))
    assert (find(module, kinds=(BATCHED,)) is not None) == known


def test_a_result_of_one_axis_is_no_product_of_matrices() -> None:
    from kintune.compiler.kernels.reading import find
    from tests.support.products import product

    assert find(product(columns=4, reduced=3, epilogue=False)) is None


def test_what_sums_nothing_is_no_sum() -> None:
    import tvm
    from tvm import te, topi

    from kintune.compiler.kernels.reading import find, joined

    data = te.placeholder((3, 4), "float32", "data")
    function = te.create_prim_func([data, topi.nn.relu(data)], index_dtype_override="int64")
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    assert find(module) is None
    assert joined(module) is None


@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.parametrize("pads", [None, (1, 1, 1, 1)])
def test_each_defect_is_seen_or_makes_no_difference(defect: str, pads: tuple[int, int, int, int] | None) -> None:
    case = Sum(images=2, rows=4, columns=4, defect=defect, pads=pads)
    if defect.startswith("padd") and pads is None:
        return
    module = module_of(case)
    weighted = check_weighted_sum(module, "dense")
    harmless = {"data read again", "padded with ones", "places swapped"}
    assert not weighted or defect in harmless or defect in ("rows for columns",), case


@pytest.mark.parametrize(
    ("shape", "columns", "reduced"), [((6,), 4, 5), ((2, 3), 4, 5), ((1, 6, 1), 3, 2), ((2, 1, 3), 1, 4), ((1,), 3, 3)]
)
def test_a_product_of_matrices_is_what_its_reading_says(shape: tuple[int, ...], columns: int, reduced: int) -> None:
    from kintune.compiler.kernels.reading import find
    from tests.support.products import product

    module = product(*shape, columns=columns, reduced=reduced, epilogue=False)
    assert check_weighted_sum(module, "dense")
    found = find(module)
    assert found is not None
    assert found.is_matrix or len(shape) == 3


def test_two_sums_are_no_weighted_sum() -> None:
    from kintune.compiler.kernels.reading import find

    module = workload(Case(height=4, width=4, channels=2, filters=3, after=("mean",)))
    assert find(module) is None


def bytes_of(
    *,
    lead: tuple[int, ...] = (6,),
    depth: int = 8,
    columns: int = 5,
    defect: str = "",
    after: str = "",
    convolves: bool = False,
    point: int | None = 0,
) -> Any:
    """A product of bytes, or a convolution of 2 x 3 with its borders, annotated as the lowering does."""
    import tvm
    from tvm import te, topi

    from kintune.compiler.kernels.contraction import BYTE_SUMS, Operator

    product = Operator()
    if convolves:
        product = Operator(True, (1, 2), (1, 1), (1, 0, 0, 2), point)
    text = {BYTE_SUMS: product.text}
    kind = "int32" if defect != "int64" else "int64"
    signed = "int8" if defect != "unsigned weights" else "uint8"
    image = (2, 4, 5, depth)
    data = te.placeholder(image if convolves else (*lead, depth), "uint8", "data")
    around = te.placeholder((2 if defect == "wide borders" else 1,), "uint8", "around")
    weight = te.placeholder((2, 3, depth, columns) if convolves else (depth, columns), signed, "weight")
    read = data
    if convolves:
        border = around[0] if point is None else tvm.tirx.const(point, "uint8")

        inside = topi.bitwise_not(data) if defect == "computed borders" else data

        def with_border(n: Any, h: Any, w: Any, c: Any) -> Any:
            return tvm.tirx.if_then_else(tvm.tirx.all(h >= 1, w < 5), inside[n, h - 1, w, c], border)

        name = "pad_temp" if defect != "borders of another name" else "other"
        read = te.compute((2, 5, 7, depth), with_border, name=name)
    k = te.reduce_axis((0, depth), "k")
    i, j = te.reduce_axis((0, 2), "i"), te.reduce_axis((0, 3), "j")

    def term(*at: Any) -> Any:
        place = (at[0], at[1] + i, at[2] * 2 + j, k) if convolves else (*at[:-1], k)
        by = weight[i, j, k, at[-1]] if convolves else weight[k, at[-1]]
        found = read[place].astype(kind) * by.astype(kind)
        return found * by.astype(kind) if defect == "weights read twice" else found

    shape = (2, 4, 3, columns) if convolves else (*lead, columns)
    over = [i, j, k] if convolves else [k]
    attributes = {} if defect == "no annotation" else text
    sums = te.compute(shape, lambda *at: te.sum(term(*at), axis=over), name="sums", attrs=attributes)
    result, operands = sums, [data, *([around] if convolves and point is None else []), weight]
    if defect == "two sums":
        other = te.compute(shape, lambda *at: te.sum(term(*at) + 1, axis=over), name="more", attrs=text)
        result = topi.add(sums, other)
    if after:
        result = topi.multiply(result, tvm.tirx.const(3, kind))
        result = topi.add(result, tvm.tirx.const(1, kind))
    function = te.create_prim_func([*operands, result], index_dtype_override="int64").with_attr("global_symbol", "main")
    marks = [] if defect == "computed weights" else [len(operands) - 1]
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", marks)})


@pytest.mark.parametrize("after", ["", "scale"])
@pytest.mark.parametrize("point", [0, 7, None])
@pytest.mark.parametrize("convolves", [False, True])
@pytest.mark.parametrize("note", ["", "no annotation", "borders of another name"])
def test_bytes_are_what_their_reading_says(note: str, convolves: bool, point: int | None, after: str) -> None:

    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.images import Image
    from kintune.compiler.kernels.microkernel import Segments
    from kintune.compiler.kernels.reading import joined, require

    module = bytes_of(convolves=convolves, point=point, after=after, defect=note)
    found = joined(module, OF_BYTES)
    assert found is not None
    changed, product, epilogue = found
    assert (epilogue is not None) == bool(after)
    parameters = {str(parameter.name): parameter for parameter in changed["main"].params}
    assert product.data.same_as(parameters["data"])
    assert product.weights.same_as(parameters["weight"])
    assert changed["main"].params[product.position].same_as(product.weights)
    assert len(product.nests) == 1 + convolves + bool(after)
    assert product.name == "sums"
    assert (product.channels, product.filters, product.batches) == (8, 5, ())
    image = Image.of(product, whole=product.border is None)
    assert image.is_copied == convolves
    if convolves:
        assert (image.taps, product.extents, product.positions) == ((2, 3), (2, 4, 3), 24)
        assert (image.number, image.height, image.width, image.values) == (2, 5, 7, 2 * 3 * 8)
        assert (image.segment, image.segments(1)) == (24, Segments(2, far=56))
        assert str(product.border) == ("around[0]" if point is None else f"T.uint8({point})")
    else:
        assert (product.extents, product.positions, image) == ((6,), 6, Image.of_matrix(6, 8))
    assert require(module, OF_BYTES)[1].name == "sums"


@pytest.mark.parametrize(
    "defect",
    ["int64", "unsigned weights", "weights read twice", "two sums", "computed borders", "wide borders"],
)
def test_bytes_that_are_read_otherwise_are_not_claimed(defect: str) -> None:
    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.reading import find, joined, require
    from kintune.errors import BuildError

    point = None if defect == "wide borders" else 0
    module = bytes_of(defect=defect, convolves=defect.endswith("borders"), point=point)
    assert find(module, OF_BYTES) is None or defect == "two sums"
    assert joined(module, OF_BYTES) is None
    with pytest.raises(BuildError, match="no products of bytes"):
        require(module, OF_BYTES)


def test_computed_weights_of_bytes_have_no_position() -> None:
    from kintune.compiler.kernels.contraction import OF_BYTES
    from kintune.compiler.kernels.reading import find

    found = find(bytes_of(defect="computed weights", depth=6, lead=(2, 3)), OF_BYTES)
    assert found is not None
    assert found.position is None
    assert (found.channels, found.positions) == (6, 6)


def blockwise_of(*, zeros: str = "", defect: str = "", after: bool = False) -> Any:
    """A product with blockwise quantised weights, annotated as the lowering does."""
    import tvm
    from tvm import te, topi

    from kintune.models.blockwise import ANNOTATION, Blockwise

    product = Blockwise(bits=8, block=4, inputs=8, zeros=zeros)
    data, integers = te.placeholder((2, 3, 8), "float32", "data"), te.placeholder((8, 5), "uint8", "integers")
    scales, points, more = (te.placeholder((2, 5), "float32", name) for name in ("scales", "points", "more"))
    k = te.reduce_axis((0, 8), "k")

    def term(*at: Any) -> Any:
        zero = points[k // 4, at[-1]] if zeros else tvm.tirx.const(128.0, "float32")
        integer = integers[k, at[-1]].astype("float32")
        centred = integer + zero if defect == "added zeros" else integer - zero
        if defect == "zeros twice":
            centred = integer - (zero + zero)
        if defect == "further zeros":
            centred = integer - (zero + more[k // 4, at[-1]])
        scale = scales[k // 4, at[-1]]
        if defect == "further scales":
            scale = scale + more[k // 4, at[-1]]
        weight = centred + scale if defect == "added scales" else centred * scale
        read = data[(*at[:-1], k)]
        if defect == "data of data":
            read = read * data[(*at[:-1], k)]
        return read + weight if defect == "no product" else read * weight

    text = {} if defect == "no annotation" else {ANNOTATION: product.text}
    sums = te.compute((2, 3, 5), lambda *at: te.sum(term(*at), axis=k), name="sums", attrs=text)
    result = topi.nn.relu(topi.add(sums, tvm.tirx.const(1.0, "float32"))) if after else sums
    if defect == "two sums":
        result = topi.add(sums, te.compute((2, 3, 5), lambda *at: te.sum(term(*at), axis=k), name="more", attrs=text))
    operands = [data, integers, scales, *([points] if zeros else []), *([more] if "further" in defect else [])]
    function = te.create_prim_func([*operands, result], index_dtype_override="int64").with_attr("global_symbol", "main")
    marks = [1] if defect == "scales are data" else list(range(1, len(operands)))
    return tvm.IRModule({"main": function.with_attr("layout_free_buffers", marks)})


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("zeros", ["", "real"])
def test_blockwise_products_are_what_their_reading_says(zeros: str, after: bool) -> None:
    from kintune.compiler.kernels.contraction import OF_BLOCKWISE, narrow_sums
    from kintune.compiler.kernels.reading import joined

    module = blockwise_of(zeros=zeros, after=after)
    assert narrow_sums(module["main"]) == {OF_BLOCKWISE}
    whole = joined(module, OF_BLOCKWISE)
    assert whole is not None
    changed, found, epilogue = whole
    assert (epilogue is not None, len(found.nests)) == (after, 1 + after)
    parameters = {str(parameter.name): parameter for parameter in changed["main"].params}
    assert found.data.same_as(parameters["data"])
    assert found.weights.same_as(parameters["integers"])
    assert found.scales.same_as(parameters["scales"])
    assert found.zeros.same_as(parameters["points"]) if zeros else found.zeros is None
    assert [str(each.name) for each in found.stored_weights] == ["integers", "scales", *(["points"] if zeros else [])]
    assert found.parameters == ((1, 2, 3) if zeros else (1, 2))
    assert (found.name, found.extents, found.positions, found.filters) == ("sums", (2, 3), 6, 5)
    assert found.blockwise is not None
    assert (found.blockwise.bits, found.blockwise.zeros) == (8, zeros)


@pytest.mark.parametrize(
    "defect",
    [
        "added zeros",
        "added scales",
        "data of data",
        "no product",
        "no annotation",
        "two sums",
        "scales are data",
        "zeros twice",
        "further zeros",
        "further scales",
    ],
)
def test_blockwise_products_that_are_made_otherwise_are_not_claimed(defect: str) -> None:
    from kintune.compiler.kernels.contraction import OF_BLOCKWISE, narrow_sums
    from kintune.compiler.kernels.reading import joined

    module = blockwise_of(defect=defect, zeros="real" if defect in ("zeros twice", "further zeros") else "")
    assert bool(narrow_sums(module["main"])) == (defect != "no annotation")
    assert joined(module, OF_BLOCKWISE) is None


def noted(module: Any, notes: dict[str, str]) -> Any:
    """The workload whose one sum has these annotations, and no others."""
    import tvm
    import tvm_ffi

    def change(block: Any) -> Any:
        if block.init is None:
            return block
        return tvm.s_tir.SBlock(
            block.iter_vars, block.reads, block.writes, block.name_hint, block.body, block.init, block.alloc_buffers,
            block.match_buffers, notes,
        )  # fmt: skip

    function = module["main"]
    return tvm.IRModule(
        {"main": function.with_body(tvm_ffi.structural_map(function.body, [(tvm.s_tir.SBlock, change)]))}
    )


def note_of(found: Any) -> dict[str, str]:
    """What lowering would write for this sum."""
    from kintune.compiler.kernels.contraction import (
        BATCHED,
        BYTE_SUMS,
        DEPTHWISE,
        GROUPED,
        OF_BLOCKWISE,
        OF_BYTES,
        SUMS,
        Operator,
    )  # fmt: skip
    from kintune.models.blockwise import ANNOTATION

    if found.types == OF_BLOCKWISE:
        return {ANNOTATION: found.blockwise.text}
    rows, columns = found.rows, found.columns
    groups = {DEPTHWISE: found.filters, GROUPED: found.groups}.get(found.kind)
    operator = Operator(
        found.kind != BATCHED and len(found.weights.shape) > 2,
        (rows.stride, columns.stride),
        (rows.dilation, columns.dilation),
        (rows.before, columns.before, rows.after, columns.after),
        batched=found.kind == BATCHED,
        **({"groups": groups} if groups else {}),
    )
    return {BYTE_SUMS if found.types == OF_BYTES else SUMS: operator.text}


def assert_same(one: Any, other: Any) -> None:
    """Compare two readings of one module."""
    import tvm
    import tvm_ffi

    names = ("replaced", "kind", "types", "parameters", "images", "rows", "columns", "blockwise", "channels", "name")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    for name in ("data", "weights", "result", "scales", "zeros"):
        first, second = getattr(one, name), getattr(other, name)
        assert (first is None and second is None) or first.same_as(second), name
    places = [tvm.tirx.Var(name, "int64") for name in ("i", "j", "c", "f", "g")]
    assert tvm_ffi.structural_equal(one.weight(*places), other.weight(*places))
    assert tvm_ffi.structural_equal(one.border, other.border)


def further_modules() -> list[Any]:
    """Sums of the kinds that no layer has, as lowering makes them."""
    import tvm
    from tvm import te

    grouped = Case(channels=12, filters=8, groups=4, kernel=(3, 2), stride=(2, 1), group_axis=True, after=("bias",))
    quantised = [(4, "", 100), (4, "packed", 64), (4, "real", 64), (8, "", 100), (8, "packed", 64), (8, "real", 64)]
    products = [FewBits((1,), 48, inputs, bits, 32, zeros).module() for bits, zeros, inputs in quantised]
    data, weight = te.placeholder((2, 3, 8), "uint8", "data"), te.placeholder((2, 8, 5), "int8", "weight")
    k = te.reduce_axis((0, 8), "k")

    def element(b: Any, m: Any, f: Any) -> Any:
        return te.sum(data[b, m, k].astype("int32") * weight[b, k, f].astype("int32"), axis=k)

    sums = te.compute((2, 3, 5), element, name="sums")
    function = te.create_prim_func([data, weight, sums], index_dtype_override="int64")
    batched = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    apart = [
        BytesOfImage(Case(6, 6, 3, 2, kernel=kernel, dilation=(2, 3), pads=pads), 7)
        for kernel in ((1, 3), (3, 1), (1, 1))
        for pads in ((0, 0, 0, 0), (1, 2, 0, 3))
    ]
    return [workload(grouped), batched, *products, *(each.module() for each in apart)]


def check_notes(module: Any) -> list[tuple[str, str]]:
    """The types and kinds of which a workload has sums; what lowering says of each must be what its loops say."""
    from kintune.compiler.kernels import contraction
    from kintune.compiler.kernels.reading import find, joined

    kinds = (contraction.DENSE, contraction.DEPTHWISE, contraction.GROUPED, contraction.BATCHED)
    found = []
    for types in (contraction.OF_FLOATS, contraction.OF_BYTES, contraction.OF_BLOCKWISE):
        whole = joined(module, types, kinds)
        if whole is None:
            assert joined(noted(module, {}), types, kinds) is None
            continue
        by_loops = find(noted(whole.module, {}), types, kinds)
        assert by_loops is not None
        assert_same(whole.found, by_loops)
        told = find(noted(whole.module, note_of(by_loops)), types, kinds)
        assert told is not None
        assert_same(told, by_loops)
        found.append((types, by_loops.kind))
    return found


@MOSTLY
@given(st.data(), st.sampled_from([kind for kind in SUMS if "norm" not in kind]))
def test_what_lowering_says_is_what_the_loops_say(data: st.DataObject, kind: str) -> None:
    assert len(check_notes(data.draw(SUMS[kind]).module())) <= 1


def test_so_it_is_of_sums_that_no_layer_has() -> None:
    kinds = [each for module in further_modules() for each in check_notes(module)]
    assert sorted(set(kinds)) == [
        ("blockwise", "dense"),
        *(("bytes", "batched"), ("bytes", "dense")),
        ("floats", "grouped"),
    ]
