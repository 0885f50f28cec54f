"""Records: every measurement, and the runs' histories, kept in a database."""

from kintune.records.devices import Fact
from kintune.records.integrity import Damage, OnDamage, refuse
from kintune.records.measurements import FailureCount, Measurement, Tally
from kintune.records.models import ModelRecord
from kintune.records.portable import PORTABLE_FORMAT, Imported, export_records, import_records
from kintune.records.runs import Run, RunState
from kintune.records.store import Counts, Store
from kintune.records.workloads import Workload

__all__ = [
    "PORTABLE_FORMAT",
    "Counts",
    "Damage",
    "Fact",
    "FailureCount",
    "Imported",
    "Measurement",
    "ModelRecord",
    "OnDamage",
    "Run",
    "RunState",
    "Store",
    "Tally",
    "Workload",
    "export_records",
    "import_records",
    "refuse",
]
