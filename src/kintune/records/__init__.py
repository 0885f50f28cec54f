"""Records: a database of all measurements and of the histories of runs."""

from kintune.records.devices import Fact
from kintune.records.integrity import Damage, OnDamage, refuse
from kintune.records.measurements import FailureCount, Measurement, MeasurementTally
from kintune.records.models import ModelRecord
from kintune.records.portable import PORTABLE_FORMAT, ImportSummary, export_records, import_records
from kintune.records.runs import Run, RunState
from kintune.records.store import RecordCounts, Store
from kintune.records.workloads import WorkloadRecord

__all__ = [
    "PORTABLE_FORMAT",
    "Damage",
    "Fact",
    "FailureCount",
    "ImportSummary",
    "Measurement",
    "MeasurementTally",
    "ModelRecord",
    "OnDamage",
    "RecordCounts",
    "Run",
    "RunState",
    "Store",
    "WorkloadRecord",
    "export_records",
    "import_records",
    "refuse",
]
