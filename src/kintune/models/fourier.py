"""Discrete Fourier transforms as matrices."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = ["fourier_matrix"]

_MOST_ENTRIES = 2**23
"""The most entries of a matrix: a transform of 2048 real values to half of the spectrum has half as many."""


def fourier_matrix(length: int, parts: int, *, is_half: bool, is_inverse: bool) -> NDArray[np.float64]:
    """The matrix of a transform of `length` values: [values read, their parts, values written, their parts].

    The parts of a value are the real and the imaginary one, or the real one alone.  Half of a spectrum is its first
    `length // 2 + 1` values, which are enough for a real signal.  The inverse transform of half a spectrum is real.

    Raises:
        ValueError: when the matrix has too many entries, or the length or the number of parts is not possible.
    """
    if length < 1 or parts not in (1, 2):
        raise ValueError(f"a transform of {length} values of {parts} parts is none")
    half = length // 2 + 1
    is_real = is_half and is_inverse
    read, written = half if is_real else length, half if is_half and not is_inverse else length
    results = 1 if is_real else 2
    if read * parts * written * results > _MOST_ENTRIES:
        raise ValueError(f"a transform of {length} values is too long to be a product of matrices")
    turns = np.outer(np.arange(read), np.arange(written)) % length
    angles = turns * (2 * math.pi / length * (1 if is_inverse else -1))
    real, imaginary = np.cos(angles), np.sin(angles)
    matrix = np.empty((read, parts, written, results))
    matrix[:, 0, :, 0] = real
    if parts == 2:
        matrix[:, 1, :, 0] = -imaginary
    if results == 2:
        matrix[:, 0, :, 1] = imaginary
        if parts == 2:
            matrix[:, 1, :, 1] = real
    if is_real:  # the other half of the spectrum is the conjugate of this one
        matrix[1 : length - half + 1] *= 2
    return matrix / length if is_inverse else matrix
