from __future__ import annotations

import pytest

from kintune.service.known_operators import LEFT, left_to_onnxruntime


def test_operators_without_an_importer_are_named() -> None:
    found = left_to_onnxruntime(
        {"Conv": 3, "StringSplit": 2, "Loop": 1, "com.acme.Magic": 1, "com.microsoft.FusedConv": 1}
    )
    assert found == {"StringSplit": 2, "com.acme.Magic": 1}


@pytest.mark.tvm
def test_nothing_is_named_that_can_be_imported() -> None:
    from kintune.models.conversion import KNOWN

    assert LEFT - KNOWN == LEFT
