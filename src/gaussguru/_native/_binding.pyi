from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

INSTRUCTION_SET: str

class MatrixView:
    def __init__(self, X: Any) -> None: ...

def evaluate(loss: int, z: Array, f: Array, slope: Array, curvature: Array) -> None: ...
def totals(
    begin: int,
    end: int,
    loss: int,
    signed_weight: Array,
    margin: Array,
    stretch: float,
    intercept: float,
    scale: float,
) -> Array: ...
def slopes(
    begin: int,
    end: int,
    loss: int,
    signed_weight: Array,
    margin: Array,
    stretch: float,
    intercept: float,
    scale: float,
    residual: Array,
    weight: Array,
    tilt: Array,
) -> None: ...
def shrunk_conjugate(
    begin: int,
    end: int,
    loss: int,
    signed_weight: Array,
    margin: Array,
    stretch: float,
    intercept: float,
    scale: float,
    factor: float,
) -> float: ...
def visit(
    begin: int,
    end: int,
    loss: int,
    X: MatrixView,
    w: Array,
    signed_weight: Array,
    intercept: float,
    scale: float,
    margin: Array,
    curved: bool,
    measured: bool,
) -> Array: ...
def margins(begin: int, end: int, X: MatrixView, w: Array, out: Array) -> None: ...
def combine(begin: int, end: int, X: MatrixView, r: Array) -> Array: ...
def product(
    begin: int, end: int, X: MatrixView, weight: Array, tilt: Array, p: Array, eta: float, shift: float
) -> Array: ...
def gram(begin: int, end: int, X: MatrixView, weight: Array, tilt: Array, direction: Array | None = None) -> Array: ...
def coordinate_pass(
    X: MatrixView,
    order: NDArray[np.int64],
    signed_weight: Array,
    cap: float,
    bias: float,
    alpha: Array,
    params: Array,
) -> None: ...
def sweep(
    index: NDArray[np.int64],
    start: NDArray[np.int64],
    row: NDArray[np.int64],
    value: Array,
    loss: int,
    signed_weight: Array,
    intercept: float,
    scale: float,
    l2: float,
    most: float,
    least: float,
    w: Array,
    margin: Array,
) -> float: ...
def sgd_pass(
    X: MatrixView,
    order: NDArray[np.int64],
    signed_weight: Array,
    loss: int,
    sigma: float,
    l2: float,
    eta0: float,
    steps: int,
    fit_intercept: bool,
    coef: Array,
    intercept: Array,
    coef_total: Array | None = None,
    intercept_total: Array | None = None,
) -> float: ...
def measured(
    loss: int,
    X: MatrixView,
    index: NDArray[np.int64],
    errors: Array,
    weight: Array,
    u: Array,
    b: float,
    own: float,
    scale: Array,
    slack: Array,
) -> Array: ...
def measured_product(
    loss: int,
    X: MatrixView,
    index: NDArray[np.int64],
    errors: Array,
    weight: Array,
    u: Array,
    p: Array,
    b: float,
    own: float,
    scale: Array,
    slack: Array,
) -> Array: ...
def measured_gram(
    loss: int,
    X: MatrixView,
    index: NDArray[np.int64],
    errors: Array,
    weight: Array,
    u: Array,
    own: Array,
    scale: Array,
    slack: Array,
) -> Array: ...
def measured_room(
    loss: int, index: NDArray[np.int64], errors: Array | None, weight: Array, slack: Array, factor: float
) -> Array: ...
def survey(values: Array) -> tuple[float, float]: ...
def column_sums(begin: int, end: int, X: MatrixView, shift: Array) -> Array: ...
def kernel_pass(
    values: Array,
    order: NDArray[np.int64],
    signed_weight: Array,
    squared_norm: Array,
    loss: int,
    sigma: float,
    l2: float,
    eta0: float,
    steps: int,
    fit_intercept: bool,
    square: float,
    coef: Array,
    intercept: Array,
    coef_total: Array | None = None,
    intercept_total: Array | None = None,
) -> float: ...
def measured_pass(
    X: MatrixView,
    errors: Array,
    order: NDArray[np.int64],
    signed_weight: Array,
    loss: int,
    sigma: float,
    l2: float,
    eta0: float,
    steps: int,
    fit_intercept: bool,
    coef: Array,
    intercept: Array,
    coef_total: Array | None = None,
    intercept_total: Array | None = None,
) -> None: ...
def joint_width(n_classes: int) -> int: ...
def sgd_joint_pass(
    X: MatrixView,
    order: NDArray[np.int64],
    label: NDArray[np.int32],
    weight: Array,
    n_classes: int,
    loss: int,
    sigma: float,
    l2: float,
    eta0: float,
    steps: int,
    fit_intercept: bool,
    coef: Array,
    intercept: Array,
    coef_total: Array | None = None,
    intercept_total: Array | None = None,
    moved: NDArray[np.int32] | None = None,
) -> None: ...
def squared_norms(begin: int, end: int, X: MatrixView, out: Array) -> None: ...
def column_sizes(begin: int, end: int, X: MatrixView) -> Array: ...
def leverages(begin: int, end: int, X: MatrixView, scale: Array, out: Array) -> None: ...
def moments(begin: int, end: int, X: MatrixView, signed_weight: Array) -> Array: ...
def cells(
    begin: int,
    end: int,
    loss: int,
    labels: NDArray[np.int32],
    weights: Array,
    scores: Array,
    stretch: float,
    intercepts: Array,
    scales: Array,
    residual: Array | None = None,
    curve: Array | None = None,
    tilt: Array | None = None,
) -> Array: ...
def shrunk_cells(
    begin: int,
    end: int,
    loss: int,
    labels: NDArray[np.int32],
    weights: Array,
    scores: Array,
    stretch: float,
    intercepts: Array,
    scales: Array,
    factor: float,
) -> Array: ...
def bend(
    begin: int,
    end: int,
    labels: NDArray[np.int32],
    scores: Array,
    shifts: Array,
    eta: Array,
    curve: Array,
    tilt: Array,
    out: Array,
) -> Array: ...

class DropRows:
    def __init__(
        self, X: MatrixView, labels: NDArray[np.int32], W: Array, n_drop: int, blur: float, least: Array
    ) -> None: ...
    def support(self, guess: Array | None = None) -> tuple[Array, Array]: ...
    def along(self, states: Array, P: Array) -> Array: ...
    def pull(self, states: Array, residual: Array, P: Array | None = None) -> Array: ...
    def bends(self, states: Array, residual: Array) -> Array: ...
    def gram(self, states: Array, curve: Array) -> Array: ...
    def moves(self, states: Array) -> Array: ...

def joint_scores(begin: int, end: int, X: MatrixView, w: Array, out: Array) -> None: ...
def joint_combine(begin: int, end: int, X: MatrixView, r: Array) -> Array: ...
def whiten(
    T: Array, noise: Array, residuals: Array, known: NDArray[np.uint8] | None
) -> tuple[Array, Array, Array] | None: ...
def add_precisions(J: Array, q: Array, n_features: int) -> Array: ...
def precisions(J: Array, n: int, n_features: int) -> Array: ...

class CleanExit:
    def acquire(self) -> Any: ...
    def release(self) -> None: ...
    def wait(self) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, *_: object) -> None: ...
