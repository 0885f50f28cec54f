from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kintune.core.version import COMPILER_ONLY
from kintune.errors import InputError
from kintune.search.features.analytic import ANALYTIC
from kintune.search.training_rows import STORES, WIDTH
from kintune_lab.pools.pool import Pool, load_pool, save_pool


def test_what_was_saved_is_loaded(pool: Pool, tmp_path: Path) -> None:
    save_pool(tmp_path / "pool.npz", pool)
    loaded = load_pool(tmp_path / "pool.npz")
    assert (loaded.origin, loaded.subjects, loaded.least) == (pool.origin, pool.subjects, 48)
    assert loaded.best_us() == pool.best_us()
    for workload, measured in pool.subgraphs.items():
        same = loaded.subgraphs[workload]
        assert same.candidates == measured.candidates
        assert np.array_equal(same.features, measured.features)
        assert np.array_equal(same.times_us, measured.times_us)


def test_rows_of_the_compiler_alone_have_no_traits(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = {w: replace(m, features=np.ones((len(m), STORES), np.float32)) for w, m in pool.subgraphs.items()}
    with monkeypatch.context() as earlier:
        earlier.setattr("kintune_lab.pools.pool.FEATURES", COMPILER_ONLY)
        save_pool(tmp_path / "pool.npz", Pool(pool.origin, narrow))
    for measured in load_pool(tmp_path / "pool.npz").subgraphs.values():
        assert measured.features.shape == (len(measured), WIDTH)
        assert not measured.features[:, :ANALYTIC].any()
        assert (measured.features[:, ANALYTIC:] == 1).all()


def test_what_was_added_later_is_left_out(pool: Pool) -> None:
    first = pool.first(16)
    assert (first.origin.samples, first.least) == (16, 16)
    for workload, measured in pool.subgraphs.items():
        assert first.subgraphs[workload].candidates == measured.candidates[:16]
        assert np.array_equal(first.subgraphs[workload].times_us, measured.times_us[:16])
    assert pool.first(100).origin == pool.origin
    assert pool.first(100).least == 48


def test_another_version_is_refused(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as other:
        other.setattr("kintune_lab.pools.pool.FEATURES", "of tomorrow")
        save_pool(tmp_path / "pool.npz", pool)
    with pytest.raises(InputError, match="with features of tomorrow"):
        load_pool(tmp_path / "pool.npz")


def test_a_pool_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the pool .*none\.npz does not exist"):
        load_pool(tmp_path / "none.npz")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
def test_a_pool_that_was_cut_short_is_refused(pool: Pool, tmp_path: Path, share: float) -> None:
    path = tmp_path / "pool.npz"
    save_pool(path, pool)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=r"pool\.npz: is no pool, or a damaged one"):
        load_pool(path)


def test_every_damaged_byte_is_noticed_or_harmless(pool: Pool, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    save_pool(path, pool)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(len(data), size=60):
        damaged = bytearray(data)
        damaged[place] ^= 0x55
        path.write_bytes(bytes(damaged))
        try:
            loaded = load_pool(path)
        except InputError:
            continue
        assert loaded.best_us() == pool.best_us()


def test_other_arrays_are_no_pool(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    data = io.BytesIO()
    np.savez(data, x=np.zeros(3))
    path.write_bytes(data.getvalue())
    with pytest.raises(InputError, match="is no pool"):
        load_pool(path)
    path.write_text("hello")
    with pytest.raises(InputError, match="is no pool"):
        load_pool(path)


def test_arrays_that_do_not_fit_are_refused(pool: Pool, tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    save_pool(path, pool)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["times_us_1"] = arrays["times_us_1"][:-1]
    data = io.BytesIO()
    np.savez(data, **arrays)
    path.write_bytes(data.getvalue())
    with pytest.raises(InputError, match="subgraph square: its arrays do not fit together"):
        load_pool(path)
