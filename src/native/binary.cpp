// The binary problem: passes over X and their loops.
#include <algorithm>
#include <vector>

#include "pointwise.hpp"
#include "rows.hpp"

namespace gaussguru {
namespace {

// squares[j] += sum_i s_i x_ij^2, over rows of a piece. Rows of weight 0 count too: 0 times NaN is NaN.
template <class T>
GAUSSGURU_APART void add_squares(const Dense<T>& x, int64_t begin, int64_t end, const double* signed_weight, double* squares) {
    int64_t i = begin;
    for (; i + kRows <= end; i += kRows) {
        const T *x0 = x.row(i), *x1 = x.row(i + 1), *x2 = x.row(i + 2), *x3 = x.row(i + 3);
        const double s0 = std::fabs(signed_weight[i]), s1 = std::fabs(signed_weight[i + 1]);
        const double s2 = std::fabs(signed_weight[i + 2]), s3 = std::fabs(signed_weight[i + 3]);
#pragma omp simd
        for (int64_t j = 0; j < x.n_columns; ++j) {
            const double a0 = x0[j], a1 = x1[j], a2 = x2[j], a3 = x3[j];
            squares[j] += (s0 * a0 * a0 + s1 * a1 * a1) + (s2 * a2 * a2 + s3 * a3 * a3);
        }
    }
    for (; i < end; ++i) {
        const T* row = x.row(i);
        const double s = std::fabs(signed_weight[i]);
#pragma omp simd
        for (int64_t j = 0; j < x.n_columns; ++j) squares[j] += s * row[j] * row[j];
    }
}

template <class T, class I>
GAUSSGURU_APART void add_squares(const Csr<T, I>& x, int64_t begin, int64_t end, const double* signed_weight, double* squares) {
    for (int64_t i = begin; i < end; ++i) {
        const double s = std::fabs(signed_weight[i]);
        for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) squares[x.indices[k]] += s * x.values[k] * x.values[k];
    }
}

// One piece of combine(): rows are gathered by label, so that four rows share a pass over their sum.
template <class Rows>
GAUSSGURU_APART void combine_piece(const Rows& x, int64_t begin, int64_t end, const double* labels, const double* r, double* out) {
    int64_t rows[2][kPiece], n[2] = {0, 0};
    for (int64_t i = begin; i < end; ++i) {
        const int side = std::signbit(labels[i]);
        rows[side][n[side]] = i;
        n[side] += r[i] != 0.0;
    }
    for (int side = 0; side < 2; ++side) add_rows(x, rows[side], n[side], r, out + side * x.n_columns);
}

template <class Rows>
void combine_of(const Rows& x, int64_t begin, int64_t end, const double* r, double* out) {
    const int64_t step = piece_rows(x);
    for (int64_t i = begin; i < end; i += step) combine_piece(x, i, i + step < end ? i + step : end, r, r, out);
}

template <class Rows>
void visit_of(int loss, const Rows& x, int64_t begin, int64_t end, const double* w, const Pointwise& at, double* margin,
              double* sums, double* out, double* curves, double* squares) {
    with_loss(loss, [&](auto family) {
        const int64_t step = piece_rows(x);
        double residual[kPiece], weight[kPiece], tilt[kPiece];
        for (int64_t i = begin; i < end; i += step) {
            const int64_t n = i + step < end ? step : end - i;
            const Rows piece = x.from(i);
            const double* const labels = at.signed_weight + i;
            margins_of(piece, 0, n, w, margin + i);
            pointwise<decltype(family), true, true>(
                0, n, {labels, margin + i, at.stretch, at.intercept, at.scale}, {residual, weight, tilt}, sums);
            combine_piece(piece, 0, n, labels, residual, out);
            if (curves) combine_piece(piece, 0, n, labels, weight, curves);
            if (squares) add_squares(piece, 0, n, labels, squares);
        }
    });
}

template <class Rows>
void moments_of(const Rows& x, int64_t begin, int64_t end, const double* signed_weight, double* out, double* squares) {
    const int64_t step = piece_rows(x);
    for (int64_t i = begin; i < end; i += step) {
        const int64_t last = i + step < end ? i + step : end;
        combine_piece(x, i, last, signed_weight, signed_weight, out);
        add_squares(x, i, last, signed_weight, squares);
    }
}

template <class T>
void column_sums_of(const Dense<T>& x, int64_t begin, int64_t end, const double* shift, double* sums, double* squares) {
    int64_t i = begin;
    for (; i + kRows <= end; i += kRows) {
        const T *x0 = x.row(i), *x1 = x.row(i + 1), *x2 = x.row(i + 2), *x3 = x.row(i + 3);
#pragma omp simd
        for (int64_t j = 0; j < x.n_columns; ++j) {
            const double a0 = x0[j] - shift[j], a1 = x1[j] - shift[j], a2 = x2[j] - shift[j], a3 = x3[j] - shift[j];
            sums[j] += (a0 + a1) + (a2 + a3);
            squares[j] += (a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3);
        }
    }
    for (; i < end; ++i) {
        for (int64_t j = 0; j < x.n_columns; ++j) {
            const double apart = x.row(i)[j] - shift[j];
            sums[j] += apart;
            squares[j] += apart * apart;
        }
    }
}

template <class Rows>
void column_sums_of(const Rows& x, int64_t begin, int64_t end, const double* shift, double* sums, double* squares) {
    for (int64_t i = begin; i < end; ++i) {
        each_entry(x, i, [&](int64_t j, double value) {
            const double apart = value - shift[j];
            sums[j] += apart;
            squares[j] += apart * apart;
        });
    }
}

// Rows with weight 0 are not read.
template <class T>
void product_of(const Dense<T>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
                const double* p, double eta, double shift, double* out, double* sums) {
    const T* rows[kRows];
    int64_t place[kRows];
    double t[kRows];
    int filled = 0;
    const auto weigh = [&](int k) {
        const int64_t i = place[k];
        t[k] = weight[i] * (t[k] + tilt[i] * eta + shift);
        sums[0] += t[k] * tilt[i];
        sums[1] += t[k];
    };
    for (int64_t i = begin; i < end; ++i) {
        if (weight[i] == 0.0) continue;
        rows[filled] = x.row(i);
        place[filled++] = i;
        if (filled < kRows) continue;
        dot4(x.n_columns, rows[0], rows[1], rows[2], rows[3], p, t);
        for (int k = 0; k < kRows; ++k) weigh(k);
        add4(x.n_columns, rows[0], rows[1], rows[2], rows[3], t, out);
        filled = 0;
    }
    for (int k = 0; k < filled; ++k) {
        t[k] = dot(x, place[k], p);
        weigh(k);
        add(x, place[k], t[k], out);
    }
}

template <class T, class I>
void product_of(const Csr<T, I>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
                const double* p, double eta, double shift, double* out, double* sums) {
    for (int64_t i = begin; i < end; ++i) {
        if (weight[i] == 0.0) continue;
        const double u = weight[i] * (dot(x, i, p) + tilt[i] * eta + shift);
        sums[0] += u * tilt[i];
        sums[1] += u;
        add(x, i, u, out);
    }
}

// Rows with weight 0 are dropped, the others gathered four at a time into a padded buffer.
template <class T>
void gram_of(const Dense<T>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
             const double* direction, double* out, int64_t stride) {
    const int64_t d = x.n_columns, width = d + (direction ? 1 : 2);
    std::vector<double> buffer(kRows * stride, 0.0);
    double* u[kRows];
    for (int k = 0; k < kRows; ++k) u[k] = buffer.data() + k * stride;
    double c[kRows];
    int filled = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (weight[i] == 0.0) continue;
        const T* row = x.row(i);
        double* to = u[filled];
        const double e = tilt[i];
        if (direction) {
#pragma omp simd
            for (int64_t j = 0; j < d; ++j) to[j] = row[j] + e * direction[j];
        } else {
            std::copy(row, row + d, to);
            to[d] = e;
        }
        to[width - 1] = 1.0;
        c[filled++] = weight[i];
        if (filled == kRows) {
            add_squares_of_four(u, c, width, out, stride);
            filled = 0;
        }
    }
    if (filled > 0) {
        for (int k = filled; k < kRows; ++k) c[k] = 0.0;
        add_squares_of_four(u, c, width, out, stride);
    }
}

// The direction is dense, so its terms are added once, after the sums over the rows.
template <class T, class I>
void gram_of(const Csr<T, I>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
             const double* direction, double* out, int64_t stride) {
    const int64_t d = x.n_columns;
    std::vector<double> apart(direction ? d : 0, 0.0);
    double* const tilts = direction ? apart.data() : out + d * stride;
    double* const ones = out + (direction ? d : d + 1) * stride;
    double tilt_tilt = 0, one_tilt = 0, one = 0;
    for (int64_t i = begin; i < end; ++i) {
        const double c = weight[i], e = tilt[i];
        if (c == 0.0) continue;
        for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) {
            const double v = c * x.values[k];
            double* const row = out + x.indices[k] * stride;
            for (I l = x.indptr[i]; l <= k; ++l) row[x.indices[l]] += v * x.values[l];
            tilts[x.indices[k]] += v * e;
            ones[x.indices[k]] += v;
        }
        tilt_tilt += c * e * e;
        one_tilt += c * e;
        one += c;
    }
    if (!direction) {
        tilts[d] = tilt_tilt;
        ones[d] = one_tilt;
        ones[d + 1] = one;
        return;
    }
    ones[d] = one;
    for (int64_t j = 0; j < d; ++j) {
        double* const row = out + j * stride;
        const double a = direction[j], t = tilts[j] + tilt_tilt * a;
        for (int64_t k = 0; k <= j; ++k) row[k] += t * direction[k] + a * tilts[k];
        ones[j] += one_tilt * a;
    }
}

template <class Rows>
void coordinate_pass_of(const Rows& x, int64_t n, const int64_t* order, const double* signed_weight, double cap,
                        double bias, double* alpha, double* params) {
    double* const constant = params + x.n_columns;
    for (int64_t k = 0; k < n; ++k) {
        const int64_t i = order[k];
        const double y = std::copysign(1.0, signed_weight[i]), most = cap * std::fabs(signed_weight[i]);
        const double slack = 1.0 - y * (dot(x, i, params) + bias * *constant);
        if (slack <= 0.0 && alpha[i] == 0.0) continue;
        const double norm = squared_norm(x, i) + bias * bias;
        if (norm == 0.0) continue;
        double to = alpha[i] + slack / norm;
        to = to < 0.0 ? 0.0 : to > most ? most : to;
        const double step = y * (to - alpha[i]);
        if (step == 0.0) continue;
        alpha[i] = to;
        add(x, i, step, params);
        *constant += step * bias;
    }
}

// --- the table ---------------------------------------------------------------------------------------------

void margins(const Matrix& m, int64_t begin, int64_t end, const double* w, double* out) {
    with_rows(m, [&](const auto& x) { margins_of(x, begin, end, w, out); });
}

void combine(const Matrix& m, int64_t begin, int64_t end, const double* r, double* out) {
    with_rows(m, [&](const auto& x) { combine_of(x, begin, end, r, out); });
}

void visit(int loss, const Matrix& m, int64_t begin, int64_t end, const double* w, const Pointwise& at, double* margin,
           double* sums, double* out, double* curves, double* squares) {
    with_rows(m, [&](const auto& x) { visit_of(loss, x, begin, end, w, at, margin, sums, out, curves, squares); });
}

void product(const Matrix& m, int64_t begin, int64_t end, const double* weight, const double* tilt, const double* p,
             double eta, double shift, double* out, double* sums) {
    with_rows(m, [&](const auto& x) { product_of(x, begin, end, weight, tilt, p, eta, shift, out, sums); });
}

void gram(const Matrix& m, int64_t begin, int64_t end, const double* weight, const double* tilt,
          const double* direction, double* out, int64_t stride) {
    with_rows(m, [&](const auto& x) { gram_of(x, begin, end, weight, tilt, direction, out, stride); });
}

void coordinate_pass(const Matrix& m, int64_t n, const int64_t* order, const double* signed_weight, double cap,
                     double bias, double* alpha, double* params) {
    with_rows(m, [&](const auto& x) { coordinate_pass_of(x, n, order, signed_weight, cap, bias, alpha, params); });
}

void column_sizes(const Matrix& m, int64_t begin, int64_t end, double* peaks, double* counts) {
    with_rows(m, [&](const auto& x) {
        for (int64_t i = begin; i < end; ++i) {
            each_entry(x, i, [&](int64_t j, double value) {
                peaks[j] = std::fabs(value) > peaks[j] ? std::fabs(value) : peaks[j];
                counts[j] += value != 0.0 ? 1.0 : 0.0;
            });
        }
    });
}

void leverages(const Matrix& m, int64_t begin, int64_t end, const double* scale, double* out) {
    with_rows(m, [&](const auto& x) {
        for (int64_t i = begin; i < end; ++i) out[i] = weighted_square(x, i, scale);
    });
}

void moments(const Matrix& m, int64_t begin, int64_t end, const double* signed_weight, double* out, double* squares) {
    with_rows(m, [&](const auto& x) { moments_of(x, begin, end, signed_weight, out, squares); });
}

void column_sums(const Matrix& m, int64_t begin, int64_t end, const double* shift, double* sums, double* squares) {
    with_rows(m, [&](const auto& x) { column_sums_of(x, begin, end, shift, sums, squares); });
}

}  // namespace

void GAUSSGURU_TARGET::add_binary(Kernels& table) {
    table.visit = visit;
    table.margins = margins;
    table.combine = combine;
    table.product = product;
    table.gram = gram;
    table.coordinate_pass = coordinate_pass;
    table.column_sizes = column_sizes;
    table.leverages = leverages;
    table.moments = moments;
    table.column_sums = column_sums;
}

}  // namespace gaussguru
