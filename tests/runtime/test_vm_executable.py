from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from kintune.errors import InputError, OrderError
from tests.support.toy_model import ADDING, manifest

pytestmark = pytest.mark.tvm


def test_it_is_used_in_the_process_that_has_opened_it() -> None:
    from kintune.runtime.vm_executable import VmExecutable

    described = manifest(ADDING, machine="riscv64")
    opened = VmExecutable(described, b"", [])
    child = os.fork()
    if child == 0:
        with pytest.raises(
            OrderError, match=r"toy was opened before this process was forked.*: open it in this process"
        ):
            opened.run(np.ones(1000, np.float32))
        os._exit(7)
    assert os.waitpid(child, 0)[1] == 7 << 8
    with pytest.raises(InputError, match="neither copied nor pickled"):
        pickle.dumps(opened)
