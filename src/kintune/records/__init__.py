"""Records: every measurement, and the runs' histories, kept in a database."""

from kintune.records.checksum import Damage, OnDamage, refuse
from kintune.records.devices import Fact
from kintune.records.measurements import FailureCount, Measurement, Tally
from kintune.records.models import ModelRecord
from kintune.records.runs import Run, RunState
from kintune.records.store import Counts, Store
from kintune.records.workloads import Workload

__all__ = [
    "Counts",
    "Damage",
    "Fact",
    "FailureCount",
    "Measurement",
    "ModelRecord",
    "OnDamage",
    "Run",
    "RunState",
    "Store",
    "Tally",
    "Workload",
    "refuse",
]
