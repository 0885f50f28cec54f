from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kintune.models.fourier import fourier_matrix


@given(st.integers(1, 24), st.booleans(), st.booleans(), st.integers(1, 2))
def test_matrices_are_numpys_transforms(length: int, is_half: bool, is_inverse: bool, parts: int) -> None:
    matrix = fourier_matrix(length, parts, is_half=is_half, is_inverse=is_inverse)
    data = np.random.default_rng(length).standard_normal(matrix.shape[:2])
    values = data[:, 0] + (1j * data[:, 1] if parts == 2 else 0)
    if is_inverse:
        wanted = np.fft.irfft(values, length) if is_half else np.fft.ifft(values)
    else:
        wanted = np.fft.fft(values)[: length // 2 + 1 if is_half else length]
    found = np.einsum("rp,rpwq->wq", data, matrix)
    np.testing.assert_allclose(found[:, 0], wanted.real, atol=1e-9)
    if matrix.shape[3] == 2:
        np.testing.assert_allclose(found[:, 1], wanted.imag, atol=1e-9)


@pytest.mark.parametrize(("length", "parts", "said"), [(5000, 1, "too long"), (0, 1, "is none"), (8, 3, "is none")])
def test_what_is_no_short_transform_is_refused(length: int, parts: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fourier_matrix(length, parts, is_half=False, is_inverse=False)
