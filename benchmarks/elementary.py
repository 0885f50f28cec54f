"""Computes the coefficients of elementary functions, and their largest errors in single precision.

They are in `kintune.compiler.graph.lowering_rules`, and that of two to a power in `kintune.compiler.programs.powers`.

    python benchmarks/elementary.py

Each polynomial minimises the largest error, by iteratively reweighted least squares (Lawson 1961).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

ERF_LIMIT = 3.92
TANH_LIMIT = 0.625
ROUNDS = 80


def fitted(degree: int, inputs: Values, wanted: Values, weights: Values) -> list[float]:
    """Fit a polynomial in `inputs` from [-1, 1]; coefficients in single precision, lowest power first."""
    basis = np.polynomial.chebyshev.chebvander(inputs, degree)
    emphasis = np.ones_like(inputs)
    best: tuple[float, Values] = (math.inf, np.zeros(degree + 1))
    for _ in range(ROUNDS):
        scale = weights * emphasis
        found = np.linalg.lstsq(basis * scale[:, None], wanted * scale, rcond=None)[0]
        error = np.abs(basis @ found - wanted) * weights
        if error.max() < best[0]:
            best = float(error.max()), found.astype(np.float64)
        emphasis *= (error / error.mean() + 1e-6) ** 0.15
        emphasis /= emphasis.mean()
    return [float(np.float32(c)) for c in np.polynomial.chebyshev.cheb2poly(best[1])]


def nodes(count: int = 4000) -> Values:
    """Points in [-1, 1], denser at the ends."""
    return np.cos(np.pi * (np.arange(count) + 0.5) / count)


def horner(coefficients: list[float], at: NDArray[np.float32]) -> NDArray[np.float32]:
    """The polynomial as a kernel computes it."""
    value = np.full_like(at, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * at + np.float32(coefficient)
    return value


def report(name: str, coefficients: list[float], error: Values) -> None:
    """Print the coefficients and the errors."""
    print(f"{name}: largest error {error.max():.2e}")
    print(f"    {tuple(coefficients)}")


def main() -> None:
    """Fit all of them."""
    erf: Callable[[Values], Values] = np.vectorize(math.erf)
    t = nodes()
    x = np.sqrt((t + 1) / 2) * ERF_LIMIT
    found = fitted(14, t, erf(x) / x, np.maximum(x, 0.2))
    at = np.linspace(-6, 6, 400_001).astype(np.float32)
    clipped = np.clip(at, -ERF_LIMIT, ERF_LIMIT).astype(np.float32)
    value = clipped * horner(found, clipped * clipped * np.float32(2 / ERF_LIMIT**2) - np.float32(1))
    report("erf(x) = x p(2 (x / 3.92)^2 - 1), absolute", found, np.abs(value - erf(at.astype(np.float64))))

    half = math.log(2) / 2
    scaled = fitted(6, t, np.exp(half * t), 1 / np.exp(half * t))
    found = [float(np.float32(c / half**power)) for power, c in enumerate(scaled)]
    at = np.linspace(-half, half, 400_001).astype(np.float32)
    report(
        "exp(x) = p(x) for |x| <= ln(2) / 2, relative", found, np.abs(horner(found, at) / np.exp(at, dtype=float) - 1)
    )

    scaled = fitted(5, t, np.exp2(t / 2), 1 / np.exp2(t / 2))
    found = [float(np.float32(c * 2**power)) for power, c in enumerate(scaled)]
    at = np.linspace(-0.5, 0.5, 400_001).astype(np.float32)
    report("2^x = p(x) for |x| <= 1/2, relative", found, np.abs(horner(found, at) / np.exp2(at, dtype=float) - 1))

    u = (t + 1) / 2
    x = np.sqrt(u) * TANH_LIMIT
    scaled = fitted(5, t, np.tanh(x) / x, x / np.tanh(x))
    found = [
        float(np.float32(c))
        for c in np.polynomial.Polynomial(scaled)(np.polynomial.Polynomial([-1, 2 / TANH_LIMIT**2])).coef
    ]
    at = np.linspace(1e-4, TANH_LIMIT, 400_001).astype(np.float32)
    report(
        "tanh(x) = x p(x^2) for |x| <= 0.625, relative",
        found,
        np.abs(at * horner(found, at * at) / np.tanh(at, dtype=float) - 1),
    )


if __name__ == "__main__":
    main()
