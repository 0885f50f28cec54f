from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from kintune.core.version import FEATURES
from kintune.search.training_rows import WIDTH
from kintune.testing.space_suite import SpaceSuite

if TYPE_CHECKING:
    from kintune.compiler.space.tvm_space import TvmSpace
    from tests.support.workloads import TinyConv


@pytest.mark.tvm
class TestTvmSpace(SpaceSuite):
    workload = "conv"

    @pytest.fixture(autouse=True)
    def _a_space_of(self, tiny_conv: TinyConv) -> None:
        self._conv = tiny_conv

    def make(self) -> TvmSpace:
        from kintune.compiler.space.tvm_space import TvmSpace
        from kintune.search.processor import Processor

        conv = self._conv
        return TvmSpace({"conv": conv.module}, conv.sketches, conv.target, Processor(8, 16), threads=2)

    def test_features_have_the_width_of_their_version(self) -> None:
        (draft,) = self.make().verify(self.make().rules("conv", 1))
        assert draft is not None
        assert FEATURES == "traits-1, per-store-pooled-1"
        assert draft.features.shape == (WIDTH,) == (53 + 328,)
        assert draft.features.any()

    def test_programs_that_differ_have_features_that_differ(self) -> None:
        drafts = [draft for draft in self.make().verify(self.make().rules("conv", 3)) if draft is not None]
        assert len({draft.features.tobytes() for draft in drafts}) > 1

    def test_the_answer_does_not_depend_on_the_number_of_threads(self) -> None:
        from kintune.compiler.space.tvm_space import TvmSpace
        from kintune.search.processor import Processor

        conv = self._conv
        single = TvmSpace({"conv": conv.module}, conv.sketches, conv.target, Processor(8, 16), threads=1)
        candidates = self.drawn(5)
        for one, two in zip(single.verify(candidates), self.make().verify(candidates), strict=True):
            assert (one is None) == (two is None)
            assert one is None or two is None or one.candidate == two.candidate
            assert one is None or two is None or np.array_equal(one.features, two.features)
