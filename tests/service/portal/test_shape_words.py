from __future__ import annotations

import pytest

from kintune.service.job_request import read_shape
from kintune.service.portal.shape_words import shape_text


@pytest.mark.parametrize("said", ["1x3x224x224", "1x{32,64}", "{1,2}x{32,64}x8", "scalar"])
def test_shapes_of_requests_are_written_as_they_are_read(said: str) -> None:
    assert shape_text(read_shape("x", said)) == said
