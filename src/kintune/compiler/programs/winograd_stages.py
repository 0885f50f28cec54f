"""The blocks of Winograd's convolution: weights, data and products are transformed, with all tiles in one dimension.

Buffers: `tiles` [t, p, c] holds the transformed data, `weights` [t, c, f] the transformed weights, and `products`
[t, p, f] their products.  t counts the (m + 2)^2 places within a tile, p all tiles of all images.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from kintune.compiler.programs.convolution import Convolution
from kintune.compiler.programs.epilogue import Epilogue
from kintune.compiler.programs.loop_blocks import block_in_loops, whole
from kintune.compiler.programs.stages import Stages
from kintune.compiler.programs.winograd_tiles import Geometry, tile_of_data, tile_of_results, transformed_weight
from kintune.compiler.space.packing import PACKS
from kintune.compiler.space.weights import LAYOUT_FREE_OPERANDS

__all__ = ["PRODUCTS", "make_stages"]

PRODUCTS = "conv2d_winograd"
"""The name of the block of the products: it is classed as a convolution."""

_SCHEDULED = {"schedule_rule": "None"}
"""The annotation of a block that no rule may change."""


def make_stages(convolution: Convolution, g: Geometry, epilogue: Epilogue | None) -> Stages:
    """The stages that compute the convolution's result, or the epilogue of it."""
    tiles = g.buffer("tiles", g.places, g.tiles, g.channels)
    weights = g.buffer("weights", g.places, g.channels, g.filters)
    products = g.buffer("products", g.places, g.tiles, g.filters)
    statements = [
        block_in_loops(
            "winograd_weights",
            [("t", g.places), ("c", g.channels), ("f", g.filters)],
            lambda t, c, f: tirx.BufferStore(weights, transformed_weight(convolution.weights, g, t, c, f), [t, c, f]),
            g,
            reads=lambda t, c, f: [(convolution.weights, [(0, 3), (0, 3), (c, 1), (f, 1)])],
            writes=lambda t, c, f: [(weights, [(t, 1), (c, 1), (f, 1)])],
            annotations={**_SCHEDULED, PACKS: True},
            kept=True,
        ),
        block_in_loops(
            "winograd_tiles",
            [("p", g.tiles), ("c", g.channels // g.lanes)],
            lambda p, c: tile_of_data(convolution, g, p, c, tiles, lambda t, channel: [g.at(t), p, channel]),
            g,
            reads=lambda p, c: [whole(convolution.data)],
            writes=lambda p, c: [(tiles, [(0, g.places), (p, 1), (c * g.at(g.lanes), g.lanes)])],
            annotations=_SCHEDULED,
            kept=True,
        ),
        _products(tiles, weights, products, g),
        _results(convolution, products, epilogue, g),
    ]
    return Stages(statements, [weights, tiles, products])


def _products(tiles: Any, weights: Any, target: Any, g: Geometry) -> Any:
    """The sum over channels, for each place: what rules make sketches of."""

    def body(t: Any, p: Any, f: Any, c: Any) -> Any:
        return tirx.BufferStore(target, target[t, p, f] + tiles[t, p, c] * weights[t, c, f], [t, p, f])

    return block_in_loops(
        PRODUCTS,
        [("t", g.places), ("p", g.tiles), ("f", g.filters), ("c", -g.channels)],
        body,
        g,
        reads=lambda t, p, f, c: [(tiles, [(t, 1), (p, 1), (c, 1)]), (weights, [(t, 1), (c, 1), (f, 1)])],
        writes=lambda t, p, f, c: [(target, [(t, 1), (p, 1), (f, 1)])],
        init=lambda t, p, f, c: tirx.BufferStore(target, tirx.const(0.0, "float32"), [t, p, f]),
        annotations={LAYOUT_FREE_OPERANDS: [weights]},
    )


def _results(convolution: Convolution, products: Any, epilogue: Epilogue | None, g: Geometry) -> Any:
    target = convolution.result if epilogue is None else epilogue.target
    others = [] if epilogue is None else [whole(buffer) for buffer in epilogue.operands]

    def body(p: Any, f: Any) -> Any:
        def place(t: int, lane: Any) -> list[Any]:
            return [g.at(t), p, f * g.at(g.lanes) + lane]

        return tile_of_results(convolution, g, p, f, products, place, epilogue)

    return block_in_loops(
        "winograd_results",
        [("p", g.tiles), ("f", g.filters // g.lanes)],
        body,
        g,
        reads=lambda p, f: [(products, [(0, g.places), (p, 1), (f * g.at(g.lanes), g.lanes)]), *others],
        writes=lambda p, f: [whole(target)],
        annotations=_SCHEDULED,
        kept=True,
    )
