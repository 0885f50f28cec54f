from __future__ import annotations

import json
from typing import TYPE_CHECKING

from kintune.cli.models import DESCRIPTIONS
from kintune.models import zoo

if TYPE_CHECKING:
    from tests.support.command import Kintune


def test_every_model_of_the_zoo_is_described() -> None:
    assert set(DESCRIPTIONS) == set(zoo.names())


def test_the_list_has_a_line_for_each(kintune: Kintune) -> None:
    lines = kintune("models").out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(zoo.names())
    assert "11.7 M  3.63 GFLOP" in next(line for line in lines if line.startswith("resnet18"))


def test_the_document_has_sizes_as_published(kintune: Kintune) -> None:
    document = json.loads(kintune("models", "--json", "-").out)
    assert document["schema_version"] == 1
    resnet18 = next(model for model in document["models"] if model["name"] == "resnet18")
    assert resnet18["parameters"] == 11_689_512
    assert resnet18["inputs"] == {"input": [1, 3, 224, 224]}
