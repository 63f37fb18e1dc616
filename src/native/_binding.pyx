# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Thin binding of the compiled row loops (kernels.hpp); shapes are the caller's promise.

Each function works on rows ``begin:end`` without the GIL. ``GAUSSGURU_KERNELS`` (``baseline`` or
``x86-64-v3``) forces one instruction set, for tests and for reports of wrong results.

``CleanExit`` is a context that an interrupt cannot break, which only compiled code can be.
"""
import os

import numpy as np

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t

# More often than anybody can interrupt what takes microseconds: whatever fails as often fails for another reason.
cdef int RELEASES = 100


cdef extern from "kernels.hpp" namespace "gaussguru" nogil:
    int FLOAT32, FLOAT64, DENSE, INT32, INT64
    int N_TOTALS

    cdef struct Matrix:
        const void* values
        const void* indices
        const void* indptr
        int64_t n_columns
        int value_type
        int index_type

    cdef struct Pointwise:
        const double* signed_weight
        const double* margin
        double stretch
        double intercept
        double scale

    cdef struct Slopes:
        double* residual
        double* weight
        double* tilt

    int N_CELL

    cdef struct Joint:
        int64_t n_classes
        const int32_t* labels
        const double* weights
        const double* scores
        double stretch
        const double* intercepts
        const double* scales

    cdef struct JointPulls:
        double* residual
        double* curve
        double* tilt

    int64_t kSamples

    cdef struct Cloud:
        int64_t n
        int64_t n_features
        const double* T
        const double* noise
        const double* residuals
        const unsigned char* known
        int correlated

    cdef struct Draws:
        int64_t n
        const int64_t* order
        const double* weight

    cdef struct Descent:
        double sigma
        double l2
        double eta0
        int64_t steps
        int fit_intercept

    cdef struct Columns:
        int64_t n
        const int64_t* index
        const int64_t* start
        const int64_t* row
        const double* value

    cdef struct Iterate:
        double* coef
        double* intercept
        double* coef_total
        double* intercept_total

    cdef struct Labels:
        int64_t n_classes
        const int32_t* label
        const int32_t* moved

    cdef struct MeasuredRows:
        int64_t n
        const int64_t* index
        const double* errors
        const double* weight

    cdef struct MeasuredPlace:
        const double* u
        const double* squares
        double b
        double own

    cdef struct Drops:
        int64_t n_classes
        const int32_t* labels
        const double* W
        int64_t n_drop
        double blur
        const double* least
        double log_above
        double log_columns

    cdef struct KernelRows:
        const double* values
        const double* squared_norm
        const int64_t* place
        int64_t n_columns

    int64_t padded(int64_t)

    cdef struct Kernels:
        const char* name
        void (*evaluate)(int, int64_t, const double*, double*, double*, double*) noexcept nogil
        void (*totals)(int, int64_t, int64_t, const Pointwise&, double*) noexcept nogil
        void (*slopes)(int, int64_t, int64_t, const Pointwise&, const Slopes&) noexcept nogil
        double (*shrunk_conjugate)(int, int64_t, int64_t, const Pointwise&, double) noexcept nogil
        void (*visit)(int, const Matrix&, int64_t, int64_t, const double*, const Pointwise&, double*, double*,
                      double*, double*, double*) noexcept nogil
        void (*margins)(const Matrix&, int64_t, int64_t, const double*, double*) noexcept nogil
        void (*combine)(const Matrix&, int64_t, int64_t, const double*, double*) noexcept nogil
        void (*product)(const Matrix&, int64_t, int64_t, const double*, const double*, const double*, double, double,
                        double*, double*) noexcept nogil
        void (*gram)(const Matrix&, int64_t, int64_t, const double*, const double*, const double*, double*,
                     int64_t) noexcept nogil
        void (*coordinate_pass)(const Matrix&, int64_t, const int64_t*, const double*, double, double, double*,
                                double*) noexcept nogil
        double (*sweep)(int, const Columns&, const Pointwise&, double, double, double, double*, double*) noexcept nogil
        double (*sgd_pass)(int, const Matrix&, const Draws&, const Descent&, const Iterate&) noexcept nogil
        double (*kernel_pass)(int, const KernelRows&, const Draws&, const Descent&, const Iterate&,
                              double) noexcept nogil
        void (*measured_pass)(int, const Matrix&, const double*, const Draws&, const Descent&, const Iterate&) noexcept nogil
        void (*sgd_joint_pass)(int, const Matrix&, const Draws&, const Descent&, const Labels&,
                               const Iterate&) noexcept nogil
        void (*squared_norms)(const Matrix&, int64_t, int64_t, double*) noexcept nogil
        void (*column_sizes)(const Matrix&, int64_t, int64_t, double*, double*) noexcept nogil
        void (*leverages)(const Matrix&, int64_t, int64_t, const double*, double*) noexcept nogil
        void (*moments)(const Matrix&, int64_t, int64_t, const double*, double*, double*) noexcept nogil
        void (*measured)(int, const Matrix&, const MeasuredRows&, const MeasuredPlace&, double*, double*,
                         double*) noexcept nogil
        void (*measured_product)(int, const Matrix&, const MeasuredRows&, const MeasuredPlace&, const double*,
                                 const double*, double*) noexcept nogil
        void (*measured_gram)(int, const Matrix&, const MeasuredRows&, const double*, const double*, const double*,
                              const double*, double*, int64_t) noexcept nogil
        void (*measured_room)(int, const MeasuredRows&, int64_t, const double*, double, double*) noexcept nogil
        void (*survey)(int64_t, const double*, double*, double*) noexcept nogil
        void (*column_sums)(const Matrix&, int64_t, int64_t, const double*, double*, double*) noexcept nogil
        void (*cells)(int, int64_t, int64_t, const Joint&, const JointPulls&, double*) noexcept nogil
        void (*shrunk_cells)(int, int64_t, int64_t, const Joint&, double, double*) noexcept nogil
        void (*bend)(int64_t, int64_t, int64_t, const int32_t*, const double*, const double*, const double*,
                     const double*, const double*, double*, double*) noexcept nogil
        void (*drop_support)(const Matrix&, int64_t, const Drops&, double*, double*) noexcept nogil
        void (*drop_along)(const Matrix&, int64_t, const Drops&, const double*, const double*, double*) noexcept nogil
        void (*drop_pull)(const Matrix&, int64_t, const Drops&, const double*, const double*, const double*,
                          double*) noexcept nogil
        void (*drop_bends)(const Matrix&, int64_t, const Drops&, const double*, const double*, double*) noexcept nogil
        void (*drop_gram)(const Matrix&, int64_t, const Drops&, const double*, const double*, double*,
                          int64_t) noexcept nogil
        void (*drop_moves)(const Matrix&, int64_t, const Drops&, const double*, double*) noexcept nogil
        void (*joint_scores)(const Matrix&, int64_t, int64_t, int64_t, const double*, double*) noexcept nogil
        void (*joint_combine)(const Matrix&, int64_t, int64_t, int64_t, const double*, double*) noexcept nogil
        bint (*whiten)(const Cloud&, double*, double*, double*) noexcept nogil
        void (*add_precisions)(int64_t, int64_t, const double*, const double*, double*) noexcept nogil
        void (*precisions)(int64_t, int64_t, const double*, double*) noexcept nogil


cdef extern from "dispatch.hpp" namespace "gaussguru" nogil:
    const Kernels* find_kernels(const char*)


cdef const Kernels* table = NULL


def _choose(str name):
    global table
    cdef bytes encoded = name.encode()
    cdef const Kernels* found = find_kernels(encoded)
    if found == NULL:
        raise ImportError(f"GAUSSGURU_KERNELS={name!r} is not built for, or not supported by, this processor; "
                          "expected 'baseline' or 'x86-64-v3'")
    table = found


_choose(os.environ.get("GAUSSGURU_KERNELS", ""))
INSTRUCTION_SET = table.name.decode()


cdef class MatrixView:
    """A borrowed, typed view of a C-contiguous array or of a CSR matrix with sorted, distinct indices."""

    cdef Matrix matrix
    cdef object owner

    def __init__(self, X):
        self.owner = X
        self.matrix.n_columns = X.shape[1]
        if isinstance(X, np.ndarray):
            if not X.flags.c_contiguous:
                raise ValueError("X must be C-contiguous")
            self.matrix.index_type = DENSE
            values = X
        else:
            if X.indices.dtype != X.indptr.dtype:
                raise ValueError("the indices and indptr of a CSR matrix must have one type")
            self.matrix.index_type = INT64 if X.indices.dtype == np.int64 else INT32
            self.matrix.indices = <const void*> <size_t> X.indices.ctypes.data
            self.matrix.indptr = <const void*> <size_t> X.indptr.ctypes.data
            values = X.data
        self.matrix.value_type = FLOAT32 if values.dtype == np.float32 else FLOAT64
        self.matrix.values = <const void*> <size_t> values.ctypes.data


def evaluate(int loss, const double[::1] z, double[::1] f, double[::1] slope, double[::1] curvature):
    cdef int64_t n = z.shape[0]
    if n == 0:
        return
    with nogil:
        table.evaluate(loss, n, &z[0], &f[0], &slope[0], &curvature[0])


cdef inline Pointwise _at(const double[::1] signed_weight, const double[::1] margin, double stretch,
                          double intercept, double scale) noexcept:
    cdef Pointwise at
    at.signed_weight = &signed_weight[0]
    at.margin = &margin[0]
    at.stretch = stretch
    at.intercept = intercept
    at.scale = scale
    return at


cdef inline Slopes _slopes(double[::1] residual, double[::1] weight, double[::1] tilt) noexcept:
    cdef Slopes to
    to.residual = &residual[0]
    to.weight = &weight[0]
    to.tilt = &tilt[0]
    return to


def totals(int64_t begin, int64_t end, int loss, const double[::1] signed_weight, const double[::1] margin,
           double stretch, double intercept, double scale):
    result = np.zeros(N_TOTALS)
    cdef double[::1] sums = result
    cdef Pointwise at = _at(signed_weight, margin, stretch, intercept, scale)
    with nogil:
        table.totals(loss, begin, end, at, &sums[0])
    return result


def slopes(int64_t begin, int64_t end, int loss, const double[::1] signed_weight, const double[::1] margin,
           double stretch, double intercept, double scale, double[::1] residual, double[::1] weight,
           double[::1] tilt):
    cdef Pointwise at = _at(signed_weight, margin, stretch, intercept, scale)
    cdef Slopes to = _slopes(residual, weight, tilt)
    with nogil:
        table.slopes(loss, begin, end, at, to)


def shrunk_conjugate(int64_t begin, int64_t end, int loss, const double[::1] signed_weight,
                     const double[::1] margin, double stretch, double intercept, double scale, double factor):
    cdef Pointwise at = _at(signed_weight, margin, stretch, intercept, scale)
    cdef double total
    with nogil:
        total = table.shrunk_conjugate(loss, begin, end, at, factor)
    return total


def visit(int64_t begin, int64_t end, int loss, MatrixView X, const double[::1] w, const double[::1] signed_weight,
          double intercept, double scale, double[::1] margin, bint curved, bint measured):
    """One array: the totals; sum r x over the positive and over the negative rows; the same of the weights if
    ``curved``; sum s x^2 if ``measured``."""
    cdef int64_t d = X.matrix.n_columns
    result = np.zeros(N_TOTALS + (2 + 2 * curved + measured) * d)
    cdef double[::1] out = result
    cdef double* curves = &out[N_TOTALS + 2 * d] if curved else NULL
    cdef double* squares = &out[N_TOTALS + (2 + 2 * curved) * d] if measured else NULL
    cdef Pointwise at = _at(signed_weight, margin, 1.0, intercept, scale)
    with nogil:
        table.visit(loss, X.matrix, begin, end, &w[0], at, &margin[0], &out[0], &out[N_TOTALS], curves, squares)
    return result


def margins(int64_t begin, int64_t end, MatrixView X, const double[::1] w, double[::1] out):
    with nogil:
        table.margins(X.matrix, begin, end, &w[0], &out[0])


def combine(int64_t begin, int64_t end, MatrixView X, const double[::1] r):
    """One array: sum r x over the rows with r >= +0, then over the others."""
    result = np.zeros(2 * X.matrix.n_columns)
    cdef double[::1] out = result
    with nogil:
        table.combine(X.matrix, begin, end, &r[0], &out[0])
    return result


def product(int64_t begin, int64_t end, MatrixView X, const double[::1] weight, const double[::1] tilt,
            const double[::1] p, double eta, double shift):
    """One array: sum_i c_i x_i, then sum_i c_i tilt_i and sum_i c_i."""
    result = np.zeros(X.matrix.n_columns + 2)
    cdef double[::1] out = result
    with nogil:
        table.product(X.matrix, begin, end, &weight[0], &tilt[0], &p[0], eta, shift, &out[0],
                      &out[X.matrix.n_columns])
    return result


def gram(int64_t begin, int64_t end, MatrixView X, const double[::1] weight, const double[::1] tilt,
         const double[::1] direction=None):
    """Lower triangle of the weighted Gram matrix of (x + tilt direction, 1), or without a direction of (x, tilt, 1);
    above the diagonal is rubbish."""
    cdef const double* along = NULL
    if direction is not None:
        along = &direction[0]
    cdef int64_t width = X.matrix.n_columns + (1 if along else 2)
    cdef int64_t stride = (width + 8) & ~7
    result = np.zeros((width + 1, stride))
    cdef double[:, ::1] out = result
    with nogil:
        table.gram(X.matrix, begin, end, &weight[0], &tilt[0], along, &out[0, 0], stride)
    return result[:width, :width]


def coordinate_pass(MatrixView X, const int64_t[::1] order, const double[::1] signed_weight, double cap, double bias,
                    double[::1] alpha, double[::1] params):
    cdef int64_t n = order.shape[0]
    if n == 0:
        return
    with nogil:
        table.coordinate_pass(X.matrix, n, &order[0], &signed_weight[0], cap, bias, &alpha[0], &params[0])


def sweep(const int64_t[::1] index, const int64_t[::1] start, const int64_t[::1] row, const double[::1] value, int loss,
          const double[::1] signed_weight, double intercept, double scale, double l2, double most, double least,
          double[::1] w, double[::1] margin):
    cdef Columns columns
    columns.n = index.shape[0]
    if columns.n == 0:
        return 0.0
    columns.index = &index[0]
    columns.start = &start[0]
    columns.row = &row[0]
    columns.value = &value[0]
    cdef Pointwise at = _at(signed_weight, margin, 1.0, intercept, scale)
    cdef double fall
    with nogil:
        fall = table.sweep(loss, columns, at, l2, most, least, &w[0], &margin[0])
    return fall


cdef inline Draws _draws(const int64_t[::1] order, const double[::1] weight) noexcept:
    cdef Draws draws
    draws.n = order.shape[0]
    draws.order = &order[0]
    draws.weight = &weight[0]
    return draws


cdef inline Descent _descent(double sigma, double l2, double eta0, int64_t steps, bint fit_intercept) noexcept:
    cdef Descent by
    by.sigma = sigma
    by.l2 = l2
    by.eta0 = eta0
    by.steps = steps
    by.fit_intercept = fit_intercept
    return by


cdef inline Iterate _iterate(double[::1] coef, double[::1] intercept, double[::1] coef_total,
                             double[::1] intercept_total) noexcept:
    cdef Iterate at
    at.coef = &coef[0]
    at.intercept = &intercept[0]
    at.coef_total = <double*> NULL if coef_total is None else &coef_total[0]
    at.intercept_total = <double*> NULL if intercept_total is None else &intercept_total[0]
    return at


def sgd_pass(MatrixView X, const int64_t[::1] order, const double[::1] signed_weight, int loss, double sigma, double l2,
             double eta0, int64_t steps, bint fit_intercept, double[::1] coef, double[::1] intercept,
             double[::1] coef_total=None, double[::1] intercept_total=None):
    """Continue after ``steps`` steps; adds the iterates up where totals are given. Returns the norm it kept, squared.

    The intercept is NaN afterwards if a row drawn has a length that is not finite.
    """
    if order.shape[0] == 0 or X.matrix.n_columns == 0:
        return 0.0
    cdef Draws draws = _draws(order, signed_weight)
    cdef Descent by = _descent(sigma, l2, eta0, steps, fit_intercept)
    cdef Iterate at = _iterate(coef, intercept, coef_total, intercept_total)
    cdef double square
    with nogil:
        square = table.sgd_pass(loss, X.matrix, draws, by, at)
    return square


def kernel_pass(const double[:, ::1] values, const int64_t[::1] order, const double[::1] signed_weight,
                const double[::1] squared_norm, int loss, double sigma, double l2, double eta0, int64_t steps,
                bint fit_intercept, double square, double[::1] coef, double[::1] intercept,
                double[::1] coef_total=None, double[::1] intercept_total=None):
    """As ``sgd_pass``, for the coefficients of samples.

    ``values``, ``order``, ``signed_weight`` and ``squared_norm`` have the kernel values of the sample of each step with
    all samples, its place among them, its weight and its value with itself; ``square`` is ``||w||^2`` at the start.
    """
    cdef int64_t n = order.shape[0]
    if n == 0:
        return square
    cdef int64_t[::1] steps_of = np.arange(n, dtype=np.int64)
    cdef KernelRows rows
    rows.values = &values[0, 0]
    rows.squared_norm = &squared_norm[0]
    rows.place = &order[0]
    rows.n_columns = values.shape[1]
    cdef Draws draws = _draws(steps_of, signed_weight)
    cdef Descent by = _descent(sigma, l2, eta0, steps, fit_intercept)
    cdef Iterate at = _iterate(coef, intercept, coef_total, intercept_total)
    with nogil:
        square = table.kernel_pass(loss, rows, draws, by, at, square)
    return square


def measured_pass(MatrixView X, const double[:, ::1] errors, const int64_t[::1] order, const double[::1] signed_weight,
                  int loss, double sigma, double l2, double eta0, int64_t steps, bint fit_intercept, double[::1] coef,
                  double[::1] intercept, double[::1] coef_total=None, double[::1] intercept_total=None):
    """As ``sgd_pass``, for rows with standard deviations of their own."""
    if order.shape[0] == 0 or X.matrix.n_columns == 0:
        return
    cdef Draws draws = _draws(order, signed_weight)
    cdef Descent by = _descent(sigma, l2, eta0, steps, fit_intercept)
    cdef Iterate at = _iterate(coef, intercept, coef_total, intercept_total)
    with nogil:
        table.measured_pass(loss, X.matrix, &errors[0, 0], draws, by, at)


def joint_width(int64_t n_classes):
    """How many numbers a feature has in the coefficients of ``sgd_joint_pass``: the classes, then zeros."""
    return padded(n_classes)


def sgd_joint_pass(MatrixView X, const int64_t[::1] order, const int32_t[::1] label, const double[::1] weight,
                   int64_t n_classes, int loss, double sigma, double l2, double eta0, int64_t steps,
                   bint fit_intercept, double[:, ::1] coef, double[::1] intercept, double[:, ::1] coef_total=None,
                   double[::1] intercept_total=None, const int32_t[::1] moved=None):
    """As ``sgd_pass``, for several classes; ``moved`` are the classes that move, one a step, or all of them."""
    if order.shape[0] == 0 or X.matrix.n_columns == 0:
        return
    cdef Draws draws = _draws(order, weight)
    cdef Descent by = _descent(sigma, l2, eta0, steps, fit_intercept)
    cdef Iterate at = _iterate(coef[0], intercept, None if coef_total is None else coef_total[0], intercept_total)
    cdef Labels labels
    labels.n_classes = n_classes
    labels.label = &label[0]
    labels.moved = <const int32_t*> NULL if moved is None else &moved[0]
    with nogil:
        table.sgd_joint_pass(loss, X.matrix, draws, by, labels, at)


def squared_norms(int64_t begin, int64_t end, MatrixView X, double[::1] out):
    with nogil:
        table.squared_norms(X.matrix, begin, end, &out[0])


def column_sizes(int64_t begin, int64_t end, MatrixView X):
    """The largest |x_ij| of every column, and how many are not 0."""
    out = np.zeros((2, X.matrix.n_columns))
    cdef double[:, ::1] view = out
    if view.shape[1]:
        with nogil:
            table.column_sizes(X.matrix, begin, end, &view[0, 0], &view[1, 0])
    return out


def leverages(int64_t begin, int64_t end, MatrixView X, const double[::1] scale, double[::1] out):
    """out[i] = sum_j scale_j x_ij^2"""
    with nogil:
        table.leverages(X.matrix, begin, end, &scale[0], &out[0])


def moments(int64_t begin, int64_t end, MatrixView X, const double[::1] signed_weight):
    """One array: sum s y x over the positive rows, over the negative rows, and sum s x^2."""
    cdef int64_t d = X.matrix.n_columns
    result = np.zeros(3 * d)
    cdef double[::1] out = result
    with nogil:
        table.moments(X.matrix, begin, end, &signed_weight[0], &out[0], &out[2 * d])
    return result


cdef inline MeasuredRows _measured(const int64_t[::1] index, const double[:, ::1] errors, const double[::1] weight) noexcept:
    cdef MeasuredRows rows
    rows.n, rows.index, rows.weight = index.shape[0], &index[0], &weight[0]
    rows.errors = <const double*> NULL if errors is None else &errors[0, 0]
    return rows


cdef inline MeasuredPlace _place(const double[::1] u, const double[::1] squares, double b, double own) noexcept:
    cdef MeasuredPlace at
    at.u, at.squares, at.b, at.own = &u[0], &squares[0], b, own
    return at


def measured(int loss, MatrixView X, const int64_t[::1] index, const double[:, ::1] errors, const double[::1] weight,
             const double[::1] u, double b, double own, double[::1] scale, double[::1] slack):
    """Rows with error bars: scale and slack of each, and pull, noise and four sums of those of either sign."""
    result = np.zeros((2, 2 * X.matrix.n_columns + 4))
    cdef double[:, ::1] out = result
    cdef MeasuredRows rows = _measured(index, errors, weight)
    cdef const double[::1] squares = np.square(u)
    cdef MeasuredPlace at = _place(u, squares, b, own)
    with nogil:
        table.measured(loss, X.matrix, rows, at, &scale[0], &slack[0], &out[0, 0])
    return result


def measured_product(int loss, MatrixView X, const int64_t[::1] index, const double[:, ::1] errors,
                     const double[::1] weight, const double[::1] u, const double[::1] p, double b, double own,
                     const double[::1] scale, const double[::1] slack):
    """One array: the sums of ``bent x``, of ``turned e^2``, of ``bent`` and of ``turned``."""
    result = np.zeros(2 * X.matrix.n_columns + 2)
    cdef double[::1] out = result
    cdef MeasuredRows rows = _measured(index, errors, weight)
    cdef const double[::1] both = np.multiply(u, p)
    cdef MeasuredPlace at = _place(p, both, b, own)
    with nogil:
        table.measured_product(loss, X.matrix, rows, at, &scale[0], &slack[0], &out[0])
    return result


def measured_gram(int loss, MatrixView X, const int64_t[::1] index, const double[:, ::1] errors,
                  const double[::1] weight, const double[::1] u, const double[::1] own, const double[::1] scale,
                  const double[::1] slack):
    """Lower triangle of the Hessian without its diagonal part; above the diagonal is rubbish."""
    cdef int64_t width = X.matrix.n_columns + 1
    cdef int64_t stride = (width + 8) & ~7
    result = np.zeros((width + 1, stride))
    cdef double[:, ::1] out = result
    cdef MeasuredRows rows = _measured(index, errors, weight)
    with nogil:
        table.measured_gram(loss, X.matrix, rows, &u[0], &own[0], &scale[0], &slack[0], &out[0, 0], stride)
    return result[:width, :width]


def measured_room(int loss, const int64_t[::1] index, const double[:, ::1] errors, const double[::1] weight,
                  const double[::1] slack, double factor):
    """For rows of either sign: the sum of what becomes free times the errors of every column, if there are any; that
    sum alone; and that of its geometric mean with the conjugate."""
    cdef int64_t d = 0 if errors is None else errors.shape[1]
    result = np.zeros((2, d + 2))
    cdef double[:, ::1] out = result
    cdef MeasuredRows rows = _measured(index, errors, weight)
    with nogil:
        table.measured_room(loss, rows, d, &slack[0], factor, &out[0, 0])
    return result


def survey(const double[::1] values):
    """The sum of some numbers, which is finite only if they are, and the least of them, unless one is not a number."""
    cdef double total = 0.0, least = np.inf
    if values.shape[0]:
        with nogil:
            table.survey(values.shape[0], &values[0], &total, &least)
    return total, least


def column_sums(int64_t begin, int64_t end, MatrixView X, const double[::1] shift):
    """One array: the sums of x - shift and of its square."""
    cdef int64_t d = X.matrix.n_columns
    result = np.zeros(2 * d)
    cdef double[::1] out = result
    with nogil:
        table.column_sums(X.matrix, begin, end, &shift[0], &out[0], &out[d])
    return result


cdef inline Joint _joint(const int32_t[::1] labels, const double[::1] weights, const double[:, ::1] scores,
                         double stretch, const double[::1] intercepts, const double[:, ::1] scales) noexcept:
    cdef Joint at
    at.n_classes = scores.shape[1]
    at.labels = &labels[0]
    at.weights = &weights[0]
    at.scores = &scores[0, 0]
    at.stretch = stretch
    at.intercepts = &intercepts[0]
    at.scales = &scales[0, 0]
    return at


def cells(int64_t begin, int64_t end, int loss, const int32_t[::1] labels, const double[::1] weights,
          const double[:, ::1] scores, double stretch, const double[::1] intercepts, const double[:, ::1] scales,
          double[:, ::1] residual=None, double[:, ::1] curve=None, double[:, ::1] tilt=None):
    """Sums over the cells, of shape (n_classes, n_classes, N_CELL); the pulls are written where they are given."""
    cdef Joint at = _joint(labels, weights, scores, stretch, intercepts, scales)
    cdef JointPulls to
    to.residual = &residual[0, 0] if residual is not None else NULL
    to.curve = &curve[0, 0] if curve is not None else NULL
    to.tilt = &tilt[0, 0] if tilt is not None else NULL
    result = np.zeros((at.n_classes, at.n_classes, N_CELL))
    cdef double[:, :, ::1] sums = result
    with nogil:
        table.cells(loss, begin, end, at, to, &sums[0, 0, 0])
    return result


def shrunk_cells(int64_t begin, int64_t end, int loss, const int32_t[::1] labels, const double[::1] weights,
                 const double[:, ::1] scores, double stretch, const double[::1] intercepts,
                 const double[:, ::1] scales, double factor):
    cdef Joint at = _joint(labels, weights, scores, stretch, intercepts, scales)
    result = np.zeros((at.n_classes, at.n_classes))
    cdef double[:, ::1] sums = result
    with nogil:
        table.shrunk_cells(loss, begin, end, at, factor, &sums[0, 0])
    return result


def bend(int64_t begin, int64_t end, const int32_t[::1] labels, const double[:, ::1] scores,
         const double[::1] shifts, const double[:, ::1] eta, const double[:, ::1] curve, const double[:, ::1] tilt,
         double[:, ::1] out):
    cdef int64_t n_classes = scores.shape[1]
    result = np.zeros((n_classes, n_classes))
    cdef double[:, ::1] turns = result
    with nogil:
        table.bend(begin, end, n_classes, &labels[0], &scores[0, 0], &shifts[0], &eta[0, 0], &curve[0, 0],
                   &tilt[0, 0], &out[0, 0], &turns[0, 0])
    return result


cdef class DropRows:
    """Rows of X from which an adversary deletes values, at some W; ``least`` has weights that are roundings."""

    cdef MatrixView X
    cdef Drops drops
    cdef int64_t n
    cdef object owner

    def __init__(self, MatrixView X, const int32_t[::1] labels, const double[:, ::1] W, int64_t n_drop, double blur,
                 const double[::1] least):
        self.X, self.owner, self.n = X, (labels, W, least), labels.shape[0]
        self.drops.n_classes = W.shape[0]
        self.drops.labels, self.drops.W, self.drops.least = &labels[0], &W[0, 0], &least[0]
        self.drops.n_drop, self.drops.blur = n_drop, blur
        self.drops.log_above, self.drops.log_columns = log(n_drop + 1.0), log(X.matrix.n_columns)

    def support(self, guess=None):
        reached = np.zeros((self.n, self.drops.n_classes))
        states = np.zeros_like(reached) if guess is None else np.array(guess)
        cdef double[:, ::1] to_reached = reached, to_states = states
        with nogil:
            table.drop_support(self.X.matrix, self.n, self.drops, &to_reached[0, 0], &to_states[0, 0])
        return reached, states

    def along(self, const double[:, ::1] states, const double[:, ::1] P):
        result = np.zeros((self.n, self.drops.n_classes))
        cdef double[:, ::1] out = result
        with nogil:
            table.drop_along(self.X.matrix, self.n, self.drops, &states[0, 0], &P[0, 0], &out[0, 0])
        return result

    def pull(self, const double[:, ::1] states, const double[:, ::1] residual, const double[:, ::1] P=None):
        result = np.zeros((self.drops.n_classes, self.X.matrix.n_columns))
        cdef double[:, ::1] out = result
        cdef const double* step = NULL
        if P is not None:
            step = &P[0, 0]
        with nogil:
            table.drop_pull(self.X.matrix, self.n, self.drops, &states[0, 0], &residual[0, 0], step, &out[0, 0])
        return result

    def bends(self, const double[:, ::1] states, const double[:, ::1] residual):
        result = np.zeros((self.drops.n_classes, self.drops.n_classes, self.X.matrix.n_columns,
                           self.X.matrix.n_columns))
        cdef double[:, :, :, ::1] out = result
        with nogil:
            table.drop_bends(self.X.matrix, self.n, self.drops, &states[0, 0], &residual[0, 0], &out[0, 0, 0, 0])
        return result

    def gram(self, const double[:, ::1] states, const double[:, ::1] curve):
        cdef int64_t width = self.X.matrix.n_columns + 1
        result = np.zeros((width, width))
        cdef double[:, ::1] out = result
        with nogil:
            table.drop_gram(self.X.matrix, self.n, self.drops, &states[0, 0], &curve[0, 0], &out[0, 0], width)
        return result

    def moves(self, const double[:, ::1] states):
        result = np.zeros((self.n, self.drops.n_classes, self.X.matrix.n_columns))
        cdef double[:, :, ::1] out = result
        with nogil:
            table.drop_moves(self.X.matrix, self.n, self.drops, &states[0, 0], &out[0, 0, 0])
        return result


def joint_scores(int64_t begin, int64_t end, MatrixView X, const double[:, ::1] w, double[:, ::1] out):
    with nogil:
        table.joint_scores(X.matrix, begin, end, w.shape[1], &w[0, 0], &out[0, 0])


def joint_combine(int64_t begin, int64_t end, MatrixView X, const double[:, ::1] r):
    """sum x r' over the rows, of shape (n_columns, n_classes)."""
    result = np.zeros((X.matrix.n_columns, r.shape[1]))
    cdef double[:, ::1] out = result
    with nogil:
        table.joint_combine(X.matrix, begin, end, r.shape[1], &r[0, 0], &out[0, 0])
    return result


def whiten(const double[:, ::1] T, noise, const double[:, ::1] residuals, known):
    """``-r'P r/2 - log det C/2`` and ``P r`` of every sample, and J for the functions below; None where some C is not
    positive definite. ``noise`` holds variances or covariances, ``known`` bytes or None."""
    cdef int64_t n = residuals.shape[0], d = residuals.shape[1]
    cdef const double[:, ::1] variances
    cdef const double[:, :, ::1] covariances
    cdef const unsigned char[:, ::1] measured
    logs, solved = np.zeros(n), np.zeros((n, d))
    J = np.empty((n + kSamples - 1) // kSamples * kSamples * (d * (d + 1) // 2))
    cdef double[::1] to_logs = logs, to_J = J
    cdef double[:, ::1] to_solved = solved
    cdef Cloud cloud
    cdef bint fine
    if n == 0 or d == 0:
        return logs, solved, J
    cloud.n, cloud.n_features, cloud.T, cloud.residuals = n, d, &T[0, 0], &residuals[0, 0]
    cloud.correlated = noise.ndim == 3
    cloud.known = NULL
    if cloud.correlated:
        covariances = noise
        cloud.noise = &covariances[0, 0, 0]
    else:
        variances = noise
        cloud.noise = &variances[0, 0]
    if known is not None:
        measured = known
        cloud.known = &measured[0, 0]
    with nogil:
        fine = table.whiten(cloud, &to_logs[0], &to_solved[0, 0], &to_J[0])
    return (logs, solved, J) if fine else None


def add_precisions(const double[::1] J, const double[::1] q, int64_t n_features):
    """The sum of ``q P``."""
    result = np.zeros((n_features, n_features))
    cdef double[:, ::1] out = result
    if q.shape[0] and n_features:
        with nogil:
            table.add_precisions(q.shape[0], n_features, &J[0], &q[0], &out[0, 0])
    return result


def precisions(const double[::1] J, int64_t n, int64_t n_features):
    """Every ``P``."""
    result = np.empty((n, n_features, n_features))
    cdef double[:, :, ::1] out = result
    if n and n_features:
        with nogil:
            table.precisions(n, n_features, &J[0], &out[0, 0, 0])
    return result


cdef class CleanExit:
    """A context that releases what it acquired, whenever an interrupt comes.

    Python raises KeyboardInterrupt between two bytecodes, and so also before the first one of an ``__exit__`` written
    in Python. Compiled code has none: ``release`` is called again until nothing interrupts it, and then the interrupt
    is raised. A subclass has ``acquire``, which returns what the context is entered as; ``release``, which may be
    called after any part of ``acquire`` and of itself; and ``wait``, called last, which an interrupt may cut short.
    """

    cdef bint entered

    def acquire(self):
        return self

    def release(self):
        pass

    def wait(self):
        pass

    def __enter__(self):
        self.entered = True
        try:
            return self.acquire()
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_):
        self._leave()
        self.wait()

    def __del__(self):
        # Where an interpreter looks for signals between __enter__ and the body, or the body and __exit__.
        if self.entered:
            self._leave()

    cdef _leave(self):
        interrupt = None
        for _ in range(RELEASES):
            try:
                self.release()
                break
            except BaseException as error:
                interrupt = error
        self.entered = False
        if interrupt is not None:
            raise interrupt
