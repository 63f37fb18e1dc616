"""Proofs of optimality: dual points, duality gaps, and bounds that follow from them."""

from gaussguru._guru.certificates.dual_point import Certificate
from gaussguru._guru.certificates.duals import (
    Feasibility,
    Recovered,
    dual_feasibility,
    dual_objective,
    duality_gap,
    norm_bound,
    recover_norm,
)

__all__ = [
    "Certificate",
    "Feasibility",
    "Recovered",
    "dual_feasibility",
    "dual_objective",
    "duality_gap",
    "norm_bound",
    "recover_norm",
]
