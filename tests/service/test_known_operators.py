from __future__ import annotations

import pytest
from onnx import defs

from kintune.models.converters.declared import declared, standard
from kintune.service.known_operators import left_to_onnxruntime


def test_operators_that_are_in_no_library_are_named() -> None:
    given = {"Conv": 3, "StringSplit": 2, "Loop": 1, "com.acme.Magic": 1, "com.microsoft.FusedConv": 1, "Celu": 1}
    assert left_to_onnxruntime({**given, "com.microsoft.Magic": 4}) == {
        "StringSplit": 2, "com.acme.Magic": 1, "com.microsoft.Magic": 4
    }  # fmt: skip


def test_few_of_the_standards_operators_are() -> None:
    named = left_to_onnxruntime({schema.name: 1 for schema in defs.get_all_schemas() if schema.domain == ""})
    assert set(named) == {
        "ImageDecoder", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
        "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer",
    }  # fmt: skip


@pytest.mark.tvm
def test_what_is_read_from_the_text_is_what_the_library_has() -> None:
    from kintune.models.converters.library import operators

    assert declared() == {(each.domain, each.name) for each in operators()}
    assert {name for domain, name in declared() if domain == ""} <= standard()
