"""What runs where in a result that runs partly in onnxruntime."""

from __future__ import annotations

import msgspec

__all__ = ["Hybrid", "Region"]


class Region(msgspec.Struct, frozen=True):
    """Nodes of the user's graph that run as one plan of Kintune's kernels: a custom operator of the host graph.

    `name` is that of its node in the host graph, `nodes` are the user's.  `inputs` and `outputs` are the tensors of the
    host graph that it reads and writes, in the order of the region's plan.  `precisions` counts its subgraphs by what
    they compute in, the model's types being called fp32; it is empty in files of earlier versions.
    """

    name: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    precisions: dict[str, int] = {}

    @property
    def is_narrow(self) -> bool:
        """Whether it computes narrower than the model's types, in part at least."""
        return any(count for precision, count in self.precisions.items() if precision != "fp32")

    @property
    def described(self) -> str:
        """The precisions of its subgraphs in words: "3 in bf16 and 2 in fp32"; empty where that is not known."""
        return " and ".join(f"{count} in {name}" for name, count in sorted(self.precisions.items()) if count)


class Hybrid(msgspec.Struct, frozen=True):
    """What runs where: the regions run as Kintune's kernels, all else in onnxruntime.

    Region number n is the operator `Region{n}`; there may be none.  `operators` has the operators that are left to
    onnxruntime with their counts, `nodes` says of up to some hundred of these nodes why each is there.  `onnxruntime`
    has the versions that it was tried with.  With `other_shapes`, inputs of shapes that were not tuned run in
    onnxruntime as well, by the model as it was.  If `plans` is not None, the one region is the whole network, and the
    combinations of shapes whose numbers are not in `plans` run in onnxruntime.  With `fixed`, a graph without regions
    has its named extents fixed to those of the one combination of shapes; otherwise it is left as the user's file is.
    """

    regions: tuple[Region, ...]
    operators: dict[str, int]
    nodes: dict[str, str]
    onnxruntime: tuple[str, ...]
    other_shapes: bool = False
    plans: tuple[int, ...] | None = None
    fixed: bool = False

    @property
    def left(self) -> str:
        """The operators that are left to onnxruntime with their counts, for people: "2 LSTM, 1 NonZero"."""
        return ", ".join(f"{count} {name}" for name, count in sorted(self.operators.items())) or "no operator"

    @property
    def summary(self) -> str:
        """A short description: "runs partly in onnxruntime (2 LSTM, 1 NonZero)"."""
        return f"runs {'partly' if self.regions else 'wholly'} in onnxruntime ({self.left})"
