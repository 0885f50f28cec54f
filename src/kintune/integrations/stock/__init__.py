"""FamilySeer inside the stock tuner: arguments for `tune_relax`, `tune_tir` and `tune_tasks` of MetaSchedule.

model = FamilyCostModel(families="op")
tune_relax(..., cost_model=model, task_scheduler=FamilyTaskScheduler())
"""

from __future__ import annotations

from kintune.integrations.stock.cost_model import FamilyCostModel
from kintune.integrations.stock.task_history import RoundTaken
from kintune.integrations.stock.task_scheduler import FamilyTaskScheduler

__all__ = ["FamilyCostModel", "FamilyTaskScheduler", "RoundTaken"]
