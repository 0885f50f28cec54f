"""Small modules of many operators, compared with PyTorch itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kintune.errors import ModelError, UnsupportedOperators
from kintune.models.ref import parse_ref
from kintune.models.torch_export import export_module
from tests.support.tools import require
from tests.support.torch_values import draw

torch = require("torch")
functional = torch.nn.functional
pytestmark = [pytest.mark.tvm, pytest.mark.filterwarnings("ignore:::torch.*")]

Compare = Callable[..., Any]
CELLS = ["LSTM", *(pytest.param(cell, marks=pytest.mark.slow) for cell in ("GRU", "RNN"))]


@pytest.mark.parametrize("dtype", ["float16", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_half_precision_is_summed_in_float32(compare: Compare, dtype: str) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = torch.nn.Conv2d(3, 8, 3)
            self.norm = torch.nn.BatchNorm2d(8)
            self.up = torch.nn.ConvTranspose2d(8, 4, 2, 2)
            self.group = torch.nn.GroupNorm(2, 4)
            self.layer = torch.nn.LayerNorm(12)
            self.head = torch.nn.Linear(12, 5)

        def forward(self, image: Any) -> Any:
            x = self.group(self.up(self.norm(self.conv(image))))
            y = self.layer(functional.avg_pool2d(x, 1) * 0.1)
            return self.head(functional.gelu(y)).softmax(-1), (x @ x).mean((2, 3)), torch.tanh(x).sum()

    target = getattr(torch, dtype)
    compare(Net().to(target), draw(1, 3, 8, 8).to(target), tolerance=3e-2)


def test_types_are_promoted_as_pytorch_does(compare: Compare) -> None:
    def net(x: Any, i: Any, b: Any) -> Any:
        return (
            *(x + i, i + b, i * 2.5, i / 3, i // 3, torch.log(i + 9), b * b, b + b, i**2, i > 0.5, x.half() * 0.1),
            *(
                b.sum(),
                b.any(),
                b.all(1),
                i.prod(1),
                i << 1,
                i >> 1,
                i.float().std(),
                x.var(1, correction=0),
                torch.sqrt(i + 9),
            ),
        )

    whole = torch.arange(-6, 6).reshape(3, 4)
    compare(net, draw(3, 4), whole, whole > 1)


def test_sums_are_formed_in_a_wider_type_where_one_is_asked_for(compare: Compare) -> None:
    def net(x: Any, h: Any, i: Any) -> Any:
        wide = torch.float64
        return x.sum(dtype=wide), h.sum(1, dtype=wide), i.sum(dtype=wide), i.sum(1, dtype=torch.int32)

    x = torch.tensor([[1e8, 1.0, -1e8], [0.25, 1e8, -1e8]])
    compare(net, x, x.clamp(-60000, 60000).to(torch.bfloat16), x.to(torch.int64))


def test_numbers_of_double_precision_stay_so(compare: Compare) -> None:
    compare(lambda x: (x + 0.1, x * 1e100, x > 0.1), draw(4).double(), tolerance=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_meets_numbers_as_it_holds_them(compare: Compare, dtype: str) -> None:
    def net(x: Any) -> Any:
        numbers = (0.1, 0.3, 1.1, 0.7, 2.01)
        return (
            *(function(x, number) for number in numbers for function in (torch.eq, torch.lt, torch.le, torch.ge)),
            *(function(x, number) for number in numbers for function in (torch.remainder, torch.fmod)),
            *(x < 100000.0, torch.remainder(0.7, x)),
        )

    x = torch.tensor([0.1, 0.3, 1.1, 0.7, 2.01, 5.0, -5.0, 100.5])
    compare(net, x.to(getattr(torch, dtype)), tolerance=0)


def test_powers_of_integers_are_exact(compare: Compare) -> None:
    """The remainders tell apart what a float64 of equal value does not."""

    def net(x: Any, n: Any, i: Any) -> Any:
        powers = (x**n, 3**i, x.int() ** n.int(), (i % 3) ** 90, i.to(torch.uint8) ** n.to(torch.uint8))
        return (*powers, *(power % 251 for power in powers))

    x = torch.tensor([3, -3, 7, -1, -1, 0, 1, 2, -2, 5, 0, 9])
    n = torch.tensor([39, 39, 22, 1001, -3, 0, -5, 62, 63, -1, 70, 1])
    compare(net, x, n, torch.arange(28, 40), tolerance=0)


def test_truth_values_are_clamped(compare: Compare) -> None:
    x, y = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
    compare(lambda x, y: (x.clamp(min=y), x.clamp(max=y), torch.maximum(x, y), torch.fmin(x, y)), x, y)


def test_a_power_alone(compare: Compare) -> None:
    x = torch.tensor([3, -3, -2], dtype=torch.int32)
    compare(lambda x, n: x**n, x, torch.tensor([5, 0, 3], dtype=torch.int32), tolerance=0)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_not_a_number_differs_from_all(compare: Compare, dtype: str) -> None:
    def net(x: Any, y: Any) -> Any:
        held = (~(x == y), ~(x < y), ~(x != y), (x > y) ^ True, torch.logical_not(x), x.bool())
        return (x != y, *held, torch.where(x != y, x, 2.0), (x != 0) & (y > 0), x.all(), x[3:6].all(0), y[1:3].any())

    nan = float("nan")
    x, y = torch.tensor([nan, 1, nan, 2, 0, 3, nan, 1]), torch.tensor([1, nan, nan, 1, 0, 3, nan, 1])
    compare(net, x.to(getattr(torch, dtype)), y.to(getattr(torch, dtype)), tolerance=0)


def test_a_cast_to_bfloat16_and_back_rounds(compare: Compare) -> None:
    def net(x: Any) -> Any:
        y = x * 1.0
        moved = (y.bfloat16().view(8, 8).t(), y.bfloat16()[2:34:2].unsqueeze(0).expand(3, 16))
        direct = (y.bfloat16().float() * 2, y.to(torch.bfloat16).contiguous().float() + 1)
        return *direct, *(each.float() * 2 for each in moved)

    ties = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, float("inf"), float("nan")])
    compare(net, torch.cat([draw(57), ties]), tolerance=0)


def test_division_rounds_as_pytorch_does(compare: Compare) -> None:
    def net(x: Any, y: Any, i: Any, j: Any) -> Any:
        modes = [torch.div(p, q, rounding_mode=m) for p, q in ((x, y), (i, j)) for m in ("floor", "trunc")]
        return (*modes, x % y, i % j, torch.fmod(x, y), torch.fmod(i, j), x.remainder(0.7))

    i, j = torch.arange(-6, 6), torch.tensor([1, -2, 3, -4, 5, -6] * 2)
    compare(net, draw(12) * 5, draw(12, seed=1), i, j)


def test_divisions_of_integers_do_not_trap(imported: Callable[..., Any]) -> None:
    """PyTorch refuses a zero, and is ended by a signal for the least number divided by -1."""

    def net(i: Any, j: Any) -> Any:
        return *(torch.div(i, j, rounding_mode=mode) for mode in ("floor", "trunc")), i % j, torch.fmod(i, j)

    least = torch.iinfo(torch.int64).min
    *_, got = imported(net, torch.tensor([least, 7, -9]), torch.tensor([-1, 0, 2]))
    for found, wanted in zip(got, ([least, 7, -5], [least, 7, -4], [0, 0, 1], [0, 0, -1]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_infinities_and_nan_pass(compare: Compare) -> None:
    def net(x: Any, mask: Any) -> Any:
        filled = x.masked_fill(mask, float("-inf"))
        return (
            *(filled, torch.where(mask, float("inf"), x), torch.full((2, 3), float("-inf")) + x[:2, :3]),
            *(torch.maximum(x, filled), torch.minimum(filled, x), x.clamp(-0.5, 0.5), x.clamp(min=filled)),
            *(functional.pad(x, (1, 1), value=float("-inf")), filled.softmax(-1), torch.isnan(x)),
            *(torch.angle(x), torch.angle(filled), torch.angle(mask), torch.angle(x.half())),
            *(torch.fmax(x, x.flip(1)), torch.fmin(x, x.flip(1)), torch.fmin(mask, ~mask), torch.fmax(x.half(), x[:1])),
        )

    x = draw(3, 4)
    x[1, 1] = x[2, 0] = x[2, 3] = float("nan")
    compare(net, x, torch.arange(12).reshape(3, 4) % 3 == 0)


def test_tensors_are_moved(compare: Compare) -> None:
    def net(x: Any, i: Any) -> Any:
        return (
            *(torch.cat([x, torch.zeros(0), x], 1), x[:, ::2, 1:-1], x.flip(1), x.roll((1, -2), (1, 2)), x.tril()),
            *(x.unsqueeze(1).squeeze(-3), x[:, i], x[i - 1, i], x.gather(1, i.reshape(1, 2, 1).expand(2, 2, 4))),
            *(x.index_select(2, i), torch.stack(x.unbind(1), 0), x.repeat(2, 1, 1), x.diagonal(0, 1, 2)),
            *(
                functional.pad(x, (2, 1), mode="reflect"),
                functional.pad(x, (2, 1), mode="replicate"),
                x.unfold(2, 2, 1),
            ),
            *(functional.pad(x, (1, 2), mode="circular"), functional.pad(x, (-1, 2)), x.chunk(2, 1)[1]),
            *(torch.einsum("bij,bkj->bik", x, x), functional.pixel_shuffle(x.reshape(1, 4, 2, 3), 2)),
            torch.addbmm(x[0, :, :3], x, x.transpose(1, 2), beta=0.5, alpha=2),
        )

    compare(net, draw(2, 3, 4), torch.tensor([1, 2]) - 1)


def test_order_and_sums_along_axes(compare: Compare) -> None:
    def net(x: Any) -> Any:
        return (
            *(
                *x.topk(2, 1),
                *x.sort(1, descending=True),
                x.argmax(1),
                x.argmin(),
                *x.max(1),
                x.cumsum(1),
                x.amax((0, 1)),
            ),
            *(x.norm(), x.norm(1, 1), x.norm(float("inf"), 1), x.logsumexp(1), x.mean(), *torch.var_mean(x, 1)),
        )

    compare(net, draw(3, 5))


def test_statistics_of_a_norm_are_results(compare: Compare) -> None:
    def net(x: Any, scale: Any) -> Any:
        return (
            *torch.ops.aten._native_batch_norm_legit.no_stats(x, scale, None, True, 0.1, 1e-5),
            *torch.native_group_norm(x, scale, None, 3, 4, 5, 2, 1e-5),
            *torch.native_layer_norm(x, [4, 5], scale.reshape(4, 1).expand(4, 5), None, 1e-5),
        )

    compare(net, draw(3, 4, 5), draw(4))


@pytest.mark.parametrize(("dtype", "kept"), [("float32", "float32"), ("float16", "float32"), ("float16", "float16")])
def test_running_statistics_of_a_norm_are_results(compare: Compare, dtype: str, kept: str) -> None:
    """What a norm in training does to statistics that are copied first, and are no state of the module."""

    def net(x: Any, scale: Any, mean: Any, variance: Any) -> Any:
        copies = mean.clone(), variance.clone()
        normed = functional.batch_norm(x, *copies, scale, training=True, momentum=0.3)
        return normed, functional.instance_norm(x, mean.clone(), variance.clone()), *copies

    x, (scale, mean, variance) = draw(3, 4, 5).to(getattr(torch, dtype)), draw(3, 4).to(getattr(torch, kept))
    compare(net, x + 2, scale, mean, variance.abs(), tolerance=1e-5 if dtype == "float32" else 2e-3)


def test_a_result_that_is_not_converted_is_refused(compare: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    from kintune.models.torch_converters import CONVERTERS

    monkeypatch.setitem(CONVERTERS, "max.dim", lambda t, a: (None, None))
    with pytest.raises(ModelError, match=r"cannot be imported: result 1 of max.dim"):
        compare(lambda x: x.max(1)[1], draw(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_values_are_put_with_a_reduction(compare: Compare, dtype: Any) -> None:
    def net(x: Any, i: Any, values: Any) -> Any:
        kinds = ("sum", "prod", "amin", "amax", *(("mean",) if x.is_floating_point() else ()))
        return tuple(x.scatter_reduce(1, i, values, kind, include_self=own) for kind in kinds for own in (True, False))

    x, values = (10 * draw(3, 6)).to(dtype), (10 * draw(3, 4, seed=1)).to(dtype)
    compare(net, x, torch.tensor([[0, 0, 3, 5], [1, 1, 1, 1], [2, 4, 2, 0]]), values, tolerance=1e-4)


def test_distances_and_products_of_three(compare: Compare) -> None:
    bilinear = torch.nn.Bilinear(4, 5, 3)
    compare(lambda x, y: (torch.dist(x, x * 2), torch.dist(x, x.flip(0), 1)), draw(3, 4), draw(3, 5))
    compare(bilinear, draw(2, 4), draw(2, 5))


def test_running_extremes_and_medians(compare: Compare) -> None:
    def net(x: Any, i: Any, gap: Any) -> Any:
        return (
            *(*x.cummax(1), *x.cummin(0), *i.cummax(-1), *i.cummin(-1), *gap.cummax(0), *gap.cummin(0)),
            *(x.median(), i.median(), gap.median(), *x.median(1), *x.median(0, keepdim=True), gap.median(0)[0]),
            *(
                *gap.kthvalue(2),
                gap.kthvalue(5)[0],
                *x.kthvalue(2, 1),
                i.kthvalue(3, 1)[0],
                x[0, 0].median(),
                *x[0, 0].cummax(0),
            ),
        )

    gap = torch.tensor([1.0, 3.0, float("nan"), 2.0, 5.0])
    compare(net, draw(3, 7), torch.arange(12).reshape(2, 6) * 5 % 7, gap)


def test_places_in_sorted_sequences(compare: Compare) -> None:
    def net(steps: Any, rows: Any, x: Any, whole: Any) -> Any:
        return (
            *(torch.searchsorted(steps, x), torch.searchsorted(steps, x, right=True, out_int32=True)),
            *(torch.searchsorted(rows, x), torch.searchsorted(rows, x, side="right")),
            *(torch.searchsorted(steps, 0.5), torch.searchsorted(whole, whole[2:4], right=True)),
            *(torch.bucketize(x, steps), torch.bucketize(x, steps, right=True)),
        )

    steps = torch.tensor([-1.0, -0.5, 0.0, 0.0, 0.5, 1.0])
    x = torch.tensor([[-2.0, 0.0, 0.5], [0.7, float("inf"), float("nan")]])
    compare(net, steps, draw(2, 4).sort(1)[0], x, torch.tensor([1, 3, 3, 8]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings(compare: Compare, mode: str) -> None:
    class Bags(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain = torch.nn.EmbeddingBag(9, 4, mode=mode, _weight=draw(9, 4))
            self.padded = torch.nn.EmbeddingBag(9, 4, mode=mode, padding_idx=2, _weight=draw(9, 4))
            self.closed = torch.nn.EmbeddingBag(9, 4, mode=mode, include_last_offset=True, _weight=draw(9, 4))

        def forward(self, rows: Any, ids: Any, offsets: Any, weights: Any) -> Any:
            weighted = self.plain(rows, per_sample_weights=weights) if mode == "sum" else self.plain(rows[:1])
            return (
                *(self.plain(rows), self.padded(rows), weighted),
                *(self.plain(ids, offsets), self.padded(ids, offsets), self.closed(ids[:5], offsets)),
            )

    rows = torch.tensor([[1, 2, 8], [2, 2, 2]])
    offsets = torch.tensor([0, 2, 2, 5])  # the second bag is empty
    compare(Bags(), rows, torch.tensor([0, 2, 2, 3, 8, 1, 1]), offsets, draw(2, 3))


def test_attention(compare: Compare) -> None:
    attend = functional.scaled_dot_product_attention

    def net(q: Any, k: Any, v: Any, mask: Any, bias: Any) -> Any:
        wide_k, wide_v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        return (
            *(attend(q, k, v, enable_gqa=True), attend(q, wide_k, wide_v, attn_mask=mask)),
            *(attend(q, wide_k, wide_v, is_causal=True), attend(q, wide_k, wide_v, attn_mask=bias, scale=0.3)),
        )

    mask = torch.arange(30).reshape(5, 6) % 4 != 0
    mask[2] = False
    bias = draw(5, 6).masked_fill(~mask, float("-inf"))
    compare(net, draw(1, 4, 5, 8), draw(1, 2, 6, 8, seed=1), draw(1, 2, 6, 8, seed=2), mask, bias)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", pytest.param("bicubic", marks=pytest.mark.slow)])
def test_images_are_sampled(compare: Compare, mode: str) -> None:
    def net(x: Any, grid: Any) -> Any:
        corners = {} if mode == "nearest" else {"align_corners": True}
        return (
            functional.grid_sample(x, grid, mode=mode, padding_mode="reflection", align_corners=False),
            functional.grid_sample(x, grid, mode=mode, align_corners=True),
            functional.interpolate(x, size=(9, 12), mode=mode, **corners),
            functional.interpolate(x, scale_factor=2, mode=mode),
        )

    compare(net, draw(1, 2, 5, 6), draw(1, 4, 3, 2, seed=1) * 0.8, tolerance=1e-4)


def test_volumes_are_sampled(compare: Compare) -> None:
    sample = functional.grid_sample

    def net(x: Any, grid: Any) -> Any:
        modes = [("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection")]
        return [sample(x, grid, mode, padding, corners) for mode, padding in modes for corners in (False, True)]

    compare(net, draw(1, 2, 3, 4, 5), draw(1, 2, 3, 2, 3, seed=1) * 0.8, tolerance=1e-4)


def test_convolutions(compare: Compare) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one = torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, output_padding=1, groups=2)
            self.two = torch.nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1, dilation=2)
            self.three = torch.nn.ConvTranspose3d(4, 2, 2, 2)
            self.same = torch.nn.Conv2d(4, 4, 3, padding="same", groups=4, dilation=2)
            self.instance = torch.nn.InstanceNorm2d(4, affine=True)

        def forward(self, x: Any) -> Any:
            return (
                *(self.one(x[:, :, 0]), self.two(x), self.three(x[..., None]), self.same(x), self.instance(x)),
                *(functional.max_pool2d(x, 2, ceil_mode=True), functional.adaptive_avg_pool2d(x, (2, 3))),
            )

    compare(Net(), draw(1, 4, 5, 7), tolerance=1e-4)


def test_signals_are_enlarged_and_distances_taken(compare: Compare) -> None:
    def net(x: Any, y: Any) -> Any:
        enlarged = functional.interpolate
        return (
            *(enlarged(x, scale_factor=2), enlarged(x, size=9, mode="nearest-exact"), enlarged(x, size=11)),
            *(torch.cdist(x, y), torch.cdist(x, y, p=1.0)),
        )

    compare(net, draw(2, 3, 4), draw(2, 5, 4, seed=1))


def test_pools_tell_where_the_largest_is(compare: Compare) -> None:
    def net(x: Any, volume: Any, whole: Any) -> Any:
        pool = functional.max_pool2d
        halves, places = pool(x, 2, return_indices=True)
        return (
            *(*pool(x, 3, 2, 1, return_indices=True), *pool(x[0], (2, 3), 1, 1, 2, return_indices=True)),
            *(*pool(x, 4, 3, 2, ceil_mode=True, return_indices=True), *pool(whole, 3, 2, 1, return_indices=True)),
            *(functional.max_unpool2d(halves, places, 2), *functional.max_pool3d(volume, 2, return_indices=True)),
        )

    compare(net, draw(2, 3, 6, 8), draw(1, 2, 4, 4, 4), draw(1, 2, 5, 5).round())


def test_pools_count_what_pytorch_counts(compare: Compare) -> None:
    average, largest = functional.avg_pool2d, functional.max_pool2d

    def net(x: Any) -> Any:
        return (
            *(average(x, 3, 2, 1, True, padded) for padded in (True, False)),
            *(average(x, 2, ceil_mode=True), average(x, (2, 3), 2, divisor_override=4)),
            *(functional.avg_pool1d(x[0], 3, 2, 1, True), functional.avg_pool3d(x[None], (1, 2, 2), ceil_mode=True)),
            *(largest(x, 3, 2, ceil_mode=True), largest(x[..., :5], 2, 3, 1, ceil_mode=True)),
        )

    compare(net, draw(1, 2, 6, 7))


def test_pools_of_integers_are_rounded_towards_zero(compare: Compare) -> None:
    average = functional.avg_pool2d

    def net(x: Any) -> Any:
        return (
            average(x, 3, 2, 1),
            average(x, 3, 2, 1, False, False),
            average(x, (2, 3), divisor_override=-2),
            functional.avg_pool3d(x[None], (1, 2, 2), divisor_override=5),
        )

    compare(net, torch.from_numpy(np.random.default_rng(0).integers(-9, 10, (1, 2, 6, 7))))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"num_layers": 2, "batch_first": True}, marks=pytest.mark.slow),
        {"bidirectional": True, "bias": False},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ],
    ids=str,
)
def test_recurrent_layers_are_one_kernel_each(compare: Compare, cell: str, options: dict[str, Any]) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = getattr(torch.nn, cell)(4, 5, **options)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    model = compare(Net(), draw(3, 2, 4))
    kernels = [str(variable.name_hint) for variable in model.module.get_global_vars()]
    assert sum(name.startswith(cell.lower()) for name in kernels) == 1  # equal layers share it


def test_recurrent_layers_with_states_of_the_user(compare: Compare) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.lstm = torch.nn.LSTM(4, 3, 2)
            self.gru = torch.nn.GRU(3, 6)
            self.rnn = torch.nn.RNN(6, 3, nonlinearity="relu")

        def forward(self, x: Any, h: Any, c: Any) -> Any:
            y, states = self.lstm(x, (h, c))
            return self.rnn(self.gru(y)[0])[1], states

    compare(Net(), draw(3, 2, 4), draw(2, 2, 3, seed=1), draw(2, 2, 3, seed=2))


def test_a_recurrent_layer_of_half_precision(compare: Compare) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.GRU(4, 5).to(torch.bfloat16)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    compare(Net(), draw(3, 2, 4).to(torch.bfloat16), tolerance=2e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_recurrent_layers_without_a_kernel_are_unrolled(compare: Compare, dtype: Any) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            projected = {"proj_size": 2} if dtype == torch.float32 else {}
            self.layer = torch.nn.LSTM(4, 3, **projected).to(dtype)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    compare(Net(), draw(3, 2, 4).to(dtype))


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("bidirectional", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_weights_of_recurrent_layers_may_be_computed(compare: Compare, cell: str, bidirectional: bool) -> None:
    """As a weight norm is; the layer is one kernel then, too."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = getattr(torch.nn, cell)(4, 5, 2, bidirectional=bidirectional)
            for name in ("weight_hh_l0", "weight_ih_l1"):
                torch.nn.utils.parametrizations.weight_norm(self.layer, name)

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    model = compare(Net(), draw(3, 2, 4))
    kernels = [str(variable.name_hint) for variable in model.module.get_global_vars()]
    assert sum(name.startswith(cell.lower()) for name in kernels) == 1


def test_weights_of_a_recurrent_layer_may_be_inputs(compare: Compare) -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any, h: Any, *weights: Any) -> Any:
            return torch._VF.gru(x, h, list(weights), True, 1, 0.0, False, False, False)

    shapes = [(15, 4), (15, 5), (15,), (15,)]
    weights = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    compare(Net(), draw(3, 2, 4), draw(1, 2, 5), *weights)


def test_outputs_of_every_kind(tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x: Any, scale: float, unused: Any = None) -> Any:
            self.calls.add_(1)
            return {"y": x * scale, "none": None, "x": x, "weight": self.weight}

    program = torch.export.export(Net(), (draw(2), 2.5))
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    model = load(parse_ref(str(path)))
    assert [tensor.name for tensor in model.inputs] == ["x"]
    assert [tensor.name for tensor in model.outputs] == ["y", "x", "weight"]
    y, x, weight = run_module(model, {"x": np.float32([1, 2])})
    assert (y.tolist(), x.tolist(), weight.tolist()) == ([2.5, 5.0], [1.0, 2.0], [1.0, 1.0])


def test_what_follows_from_open_sizes_is_computed(tmp_path: Path, run_module: Any) -> None:
    from kintune.models.importer import load

    class Net(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            rows, columns = x.shape
            return x.reshape(-1) * torch.arange(rows * columns) + rows, x.new_full((rows, 1), -np.inf)

    dims = {0: torch.export.Dim("rows"), 1: torch.export.Dim("columns")}
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(Net(), (draw(3, 4),), dynamic_shapes=(dims,)), path)
    x = draw(2, 5)
    got = run_module(load(parse_ref(str(path), ["x=2x5"])), {"x": x.numpy()})
    for ours, theirs in zip(got, Net()(x), strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-6)


def test_each_variable_leads_to_the_users_module(compare: Compare) -> None:
    torch.manual_seed(0)
    model = compare(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()), draw(2, 4))
    bindings = [b for block in model.module["main"].body.blocks for b in block.bindings]
    assert set(model.sources) >= {binding.var.name for binding in bindings[:-1]}
    assert set(model.sources.values()) <= set(model.nodes)
    assert set(model.nodes.values()) == {"aten.linear.default '0'", "aten.relu.default '1'"}


def test_what_cannot_be_imported_is_named(tmp_path: Path) -> None:
    from kintune.models.importer import load

    class Spectrum(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.fft.rfft(x).sqrt().abs()

    class Branch(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))

    class State(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("past", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.past.add_(x)
            return self.past * 2

    class InPlace(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1) * 2

    class Found(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[x > 0]

    for module, error, message in (
        (Spectrum(), UnsupportedOperators, r"sqrt\.default on complex numbers x1"),
        (Branch(), UnsupportedOperators, r"cond x1"),
        (State(), ModelError, "reads and changes its buffer past"),
        (InPlace(), ModelError, "changes its input x in place"),
        (Found(), ModelError, "depends on the data"),
    ):
        with pytest.raises(error, match=message):
            load(export_module(module, (draw(4),), tmp_path))
