from __future__ import annotations

import os
import shutil

import pytest

from kintune.measure.cuda.gpus import list_gpus
from kintune.testing.paper_gpu import build_paper_gpu

collect_ignore: list[str] = []  # what there is nothing for here is no test, not one that is skipped
if not list_gpus():
    collect_ignore.append("on_gpu")
if shutil.which("nvcc") is None:
    collect_ignore.append("with_nvcc")


@pytest.fixture(scope="session")
def paper_gpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which this machine has one GPU, on paper."""
    return {**os.environ, **build_paper_gpu(tmp_path_factory.mktemp("paper"))}


@pytest.fixture
def programs(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> os.PathLike[str]:
    """A folder that is all that is searched for programs, with no toolkit named."""
    for variable in ("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path
