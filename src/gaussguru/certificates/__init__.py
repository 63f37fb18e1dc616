"""Proofs of optimality: dual points, duality gaps, and what follows from them."""

from gaussguru.certificates.collapse import CollapseProof, collapse_sigma, is_collapsed
from gaussguru.certificates.duals import (
    Feasibility,
    Recovered,
    dual_feasibility,
    dual_objective,
    duality_gap,
    norm_bound,
    recover_norm,
)
from gaussguru.certificates.gaps import (
    EPS,
    Certificate,
    certify,
    dual_value,
    expected_gap,
    is_promising,
    refine,
    rounded_up,
)
from gaussguru.certificates.joint import certify_joint, certify_params, certify_uncertain, find_surplus
from gaussguru.certificates.kinks import can_refine, refine_ties

__all__ = [
    "EPS",
    "Certificate",
    "CollapseProof",
    "Feasibility",
    "Recovered",
    "can_refine",
    "certify",
    "certify_joint",
    "certify_params",
    "certify_uncertain",
    "collapse_sigma",
    "dual_feasibility",
    "dual_objective",
    "dual_value",
    "duality_gap",
    "expected_gap",
    "find_surplus",
    "is_collapsed",
    "is_promising",
    "norm_bound",
    "recover_norm",
    "refine",
    "refine_ties",
    "rounded_up",
]
