"""The inverse of the normal distribution and of the error function.

The rational approximations are those of M. J. Wichura, Algorithm AS 241: The percentage points of the normal
distribution, Applied Statistics 37 (1988), pages 477 to 484 (PPND16).
"""

from __future__ import annotations

import math

from kintune.models.formulas import Real, choose, quotient
from kintune.models.torch_converters.translation import Converter, function_of

__all__ = ["CONVERTERS"]

_CENTRE = 0.425  # as far from a half, a share is in the centre
_FAR = 5.0  # root of the logarithm of a share from which on it is in the far tail

_CENTRE_ABOVE = (
    *(2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4),
    *(1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080),
)
_CENTRE_BELOW = (
    *(5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4),
    *(5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)
"""Numerator and denominator in the centre: coefficients of powers, the highest first."""

_TAIL_ABOVE = (
    *(7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258),
    *(3.64784832476320460504, 5.76949722146069140550, 4.63033784615654529590, 1.42343711074968357734),
)
_TAIL_BELOW = (
    *(1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1),
    *(6.89767334985100004550e-1, 1.67638483018380384940, 2.05319162663775882187, 1.0),
)
"""Numerator and denominator in the tails."""

_FAR_ABOVE = (
    *(2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2),
    *(2.96560571828504891230e-1, 1.78482653991729133580, 5.46378491116411436990, 6.65790464350110377720),
)
_FAR_BELOW = (
    *(2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4),
    *(1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)
"""Numerator and denominator in the far tails."""


def _normal_quantile(share: Real) -> Real:
    """The number below which a share of the normal distribution lies."""
    return _quantile(share - 0.5, choose(share > 0.5, 1.0 - share, share))


def _inverse_error_function(x: Real) -> Real:
    return _quantile(x * 0.5, (1.0 - abs(x)) * 0.5) * math.sqrt(0.5)


def _quantile(off: Real, tail: Real) -> Real:
    """The quantile of a share: `off` is its distance from a half, and `tail` what lies beyond it, which is less."""
    centre = off * quotient(_CENTRE_ABOVE, _CENTRE_BELOW, _CENTRE**2 - off * off)
    root = (-tail.log()).sqrt()
    size = choose(
        root > _FAR,
        quotient(_FAR_ABOVE, _FAR_BELOW, root - _FAR),
        quotient(_TAIL_ABOVE, _TAIL_BELOW, root - 1.6),
    )
    size = choose(tail.equal(0.0), math.inf, size)
    return choose(abs(off) > _CENTRE, choose(off < 0.0, -size, size), centre)


CONVERTERS: dict[str, Converter] = {
    "erfinv.default": function_of(_inverse_error_function),
    "special_ndtri.default": function_of(_normal_quantile),
}
"""Operator of aten -> its converter."""
