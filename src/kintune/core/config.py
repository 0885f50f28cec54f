"""What a tuning job is asked for: model, target, budget, and how its search proceeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from kintune.core.measurement_protocol import DeviceType, MeasurementProtocol, operands_for
from kintune.core.model import ModelRef
from kintune.core.workload import Subgraph

__all__ = ["Budget", "Foresee", "JobSpec", "Options", "Strategy"]

Foresee: TypeAlias = Literal["none", "published", "guarded"]
"""What happens after a full round: nothing; a small round for the steepest sibling, as FamilySeer does; or the same as
long as what the family's model predicts holds."""

Budget: TypeAlias = Literal["gradient", "balanced", "prospect"]
"""Who gets the next round: the subgraph with the steepest expected gain, or the one with the fewest trials.  With
"prospect" it is the steepest one, as far as what the device reaches at its best leaves a gain, and its round is sized
by that."""


class Strategy(msgspec.Struct, frozen=True):
    """The factors of a search.

    `families` names the family algorithm.  A full round has `round_size` candidates, shared by the `width` steepest
    subgraphs; a foresee round has `foresee_size`.  Before any gets a full round, every subgraph gets as many candidates
    as `survey` has for each of its rounds; an empty one leaves the survey out.  `rules` lets the rule propose
    candidates; `carry` carries good programs over to siblings.  With `thrift`, a candidate that is dear to build must
    promise more than others.  Up to `again` of a subgraph's fastest programs are timed again in each of its rounds, one
    for eight new ones at most.  With `draft`, candidates are evolved and ranked in bulk by their decisions before any
    is made.
    """

    families: str = "op"
    foresee: Foresee = "guarded"
    carry: bool = True
    rules: bool = True
    survey: tuple[int, ...] = (1, 3, 4)
    budget: Budget = "gradient"
    round_size: int = 32
    foresee_size: int = 16
    width: int = 1
    thrift: bool = True
    draft: bool = False
    again: int = 3


class Options(msgspec.Struct, frozen=True):
    """What the user asked for.  At least one of the three limits is set; whichever is reached first ends the search.

    With `kin`, the search starts from what the records know of other workloads.  Without `search`, the network is
    compiled from what the records, or the rule, suggest, and checked.
    """

    trials: int | None = None
    minutes: float | None = None
    until_ms: float | None = None
    strategy: Strategy = Strategy()
    kin: bool = True
    seed: int = 0
    rtol: float = 1e-3
    atol: float = 1e-3
    compare: tuple[str, ...] = ("onnxruntime", "openvino", "torch")
    search: bool = True  # False: nothing is measured, what is known ships


class JobSpec(msgspec.Struct, frozen=True):
    """Everything a job process needs to know."""

    run_id: str
    model: ModelRef
    device_type: DeviceType
    protocol: MeasurementProtocol
    options: Options
    output: str
    input_files: tuple[str, ...] = ()  # .npz files with the user's own inputs for the proof, a set each
    cores: int = 1  # of the host, for selecting and building
    device: str = "cpu"  # the type of device to time on, as the scheduler knows it
    devices: int = 1  # how many of them there are
    caches: tuple[int, ...] = ()  # bytes of data that the device's caches hold, by level; 0: not known
    inflight: int = 1  # rounds that may be under way at once; more than one pays where the device is not the host
    cool_bytes: int = 0  # of a network that stay in the device's last cache, as in `DeviceAbout`
    conservative: bool = False  # lower the network without layout conversion and rewrites

    def of_network(self, subgraphs: Sequence[Subgraph]) -> JobSpec:
        """The same, with protocol and device type as they are for a network of these subgraphs."""
        operands = operands_for(subgraphs, self.cool_bytes)
        if operands == "cold":
            return self
        protocol, device_type = self.protocol.with_operands(operands), self.device_type.with_operands(operands)
        return msgspec.structs.replace(self, protocol=protocol, device_type=device_type)
