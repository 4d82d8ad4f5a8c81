"""Distribution functions (beta, Student's t, normal) and quantiles (beta, Student's t), without SciPy.

SciPy would add 142 MB to an installation, which needs only these few functions of it. They agree with SciPy's
to 1e-9. The regularised incomplete beta function is the continued fraction of DLMF 8.17.22.
"""

from __future__ import annotations

import math

_TINY = 1e-300
_CLOSE = 1e-16
_TERMS = 100_000
_HALVINGS = 1100  # enough to halve 1 down to the smallest float


def beta_share(a: float, b: float, x: float) -> float:
    """The share of a Beta(a, b) distribution below x: the regularised incomplete beta function I_x(a, b)."""
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x, x)
    return _incomplete_beta(a, b, x, 1.0 - x)


def beta_quantile(a: float, b: float, share: float) -> float:
    """The x with `beta_share(a, b, x)` == `share`, by Newton's method, kept in a bracket by bisection."""
    if not 0.0 < share < 1.0:
        return float(share >= 1.0)
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_HALVINGS):
        error = beta_share(a, b, x) - share
        low, high = (x, high) if error < 0 else (low, x)
        step = error / (_density(a, b, x) or _TINY)
        following = x - step
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - x) <= 4e-16 * x or not low < following < high:
            return following
        x = following
    return x


def student_share(freedom: float, t: float) -> float:
    """The share of Student's t distribution with `freedom` degrees of freedom below t."""
    square = t * t
    if square < 1.0:  # here freedom / (freedom + square) would lose digits of `square`
        return 0.5 + math.copysign(beta_share(0.5, freedom / 2, square / (freedom + square)) / 2, t)
    outside = beta_share(freedom / 2, 0.5, freedom / (freedom + square)) / 2
    return outside if t < 0 else 1.0 - outside


def student_quantile(freedom: float, share: float) -> float:
    """The t with `student_share(freedom, t)` == `share`; infinite for a share of 0 or 1."""
    if share < 0.5:
        return -student_quantile(freedom, 1.0 - share)
    inside = 2.0 * share - 1.0
    if inside < 0.5:
        part = beta_quantile(0.5, freedom / 2, inside)
        return math.sqrt(freedom * part / (1.0 - part))
    part = beta_quantile(freedom / 2, 0.5, 2.0 * (1.0 - share))
    return math.sqrt(freedom * (1.0 - part) / part) if part else math.inf


def normal_share(z: float) -> float:
    """The share of the standard normal distribution below z."""
    return math.erfc(-z / math.sqrt(2.0)) / 2


def _density(a: float, b: float, x: float) -> float:
    return math.exp(_log_weight(a, b, x, 1.0 - x)) / (x * (1.0 - x)) if 0.0 < x < 1.0 else 0.0


def _log_weight(a: float, b: float, x: float, y: float) -> float:
    """log(x^a y^b / B(a, b)), with y = 1 - x."""
    return a * math.log(x) + b * math.log(y) - _log_beta(a, b)


def _log_beta(a: float, b: float) -> float:
    """log B(a, b). From 10 on by Stirling's series, because differences of log Gamma lose most digits."""
    small, large = min(a, b), max(a, b)
    if small < 10:
        return math.lgamma(small) + _log_gamma_ratio(large, small)
    total = small + large
    return (
        0.5 * math.log(2 * math.pi / large)
        + (small - 0.5) * math.log(small / total)
        + large * math.log1p(-small / total)
        + _stirling(small)
        + _stirling(large)
        - _stirling(total)
    )


def _log_gamma_ratio(large: float, step: float) -> float:
    """log(Gamma(large) / Gamma(large + step))."""
    if large < 10:
        return math.lgamma(large) - math.lgamma(large + step)
    total = large + step
    return (
        (large - 0.5) * -math.log1p(step / large)
        - step * math.log(total)
        + step
        + _stirling(large)
        - _stirling(total)
    )


def _stirling(z: float) -> float:
    """The correction to Stirling's formula for log Gamma(z), z >= 10 (DLMF 5.11.1)."""
    y = 1.0 / (z * z)
    return (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y * (1 / 1188 - y * 691 / 360360))))) / z


def _incomplete_beta(a: float, b: float, x: float, y: float) -> float:
    """I_x(a, b), regularised, by its continued fraction (modified Lentz); y = 1 - x."""
    d = 1.0 / _not_zero(1.0 - (a + b) * x / (a + 1))
    c, fraction = 1.0, d
    for m in range(1, _TERMS):
        change = 1.0
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + factor * d)
            c = _not_zero(1.0 + factor / c)
            change = c * d
            fraction *= change
        if abs(change - 1.0) < _CLOSE:
            break
    return math.exp(_log_weight(a, b, x, y)) / a * fraction


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
