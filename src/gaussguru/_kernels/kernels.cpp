// Compiled once for each instruction set: GAUSSGURU_TARGET names the function that returns the table.
#include "kernels.hpp"

#include <vector>

#include "losses.hpp"

#ifdef _MSC_VER
#define GAUSSGURU_RESTRICT __restrict
#else
#define GAUSSGURU_RESTRICT __restrict__
#endif

namespace gaussguru {
namespace {

// --- pointwise -------------------------------------------------------------------------------------------

template <class F>
inline void with_loss(int loss, F&& body) {
    switch (loss) {
        case GAUSSIAN: body(Gaussian{}); break;
    }
}

void evaluate(int loss, int64_t n, const double* z, double* f, double* slope, double* curvature) {
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) {
            const Terms terms = Loss::at(z[i]);
            f[i] = terms.f;
            slope[i] = terms.slope;
            curvature[i] = terms.curvature;
        }
    });
}

// One loop for totals, slopes, or both; what is not wanted is compiled away.
template <class Loss, bool kTotals, bool kSlopes>
void pointwise(int64_t begin, int64_t end, const Pointwise& at, const Slopes& to, double* sums) {
    const double* const weight = at.signed_weight;
    const double* const margin = at.margin;
    double* const residual = to.residual;
    double* const curve_of = to.weight;
    double* const tilt = to.tilt;
    const double stretch = at.stretch, intercept = at.intercept, scale = at.scale;
    double value = 0, slope_pos = 0, slope_neg = 0, curve_pos = 0, curve_neg = 0, conjugate = 0;
#pragma omp simd reduction(+ : value, slope_pos, slope_neg, curve_pos, curve_neg, conjugate)
    for (int64_t i = begin; i < end; ++i) {
        const double y = std::copysign(1.0, weight[i]), s = std::fabs(weight[i]);
        const double z = (1.0 - y * (stretch * margin[i] + intercept)) / scale;
        const Terms terms = Loss::at(z);
        const double slope = s * terms.slope, curve = s * terms.curvature;
        if (kSlopes) {
            residual[i] = std::copysign(slope, weight[i]);
            // Rows without curvature are skipped by gram() and product(); 1e-15 of the largest is none.
            curve_of[i] = terms.curvature > 1e-16 ? curve / scale : 0.0;
            tilt[i] = y * z;
        }
        if (kTotals) {
            const bool positive = y > 0.0;
            value += s * terms.f;
            slope_pos += positive ? slope : 0.0;
            slope_neg += positive ? 0.0 : slope;
            curve_pos += positive ? curve : 0.0;
            curve_neg += positive ? 0.0 : curve;
            conjugate += s * terms.conjugate;
        }
    }
    if (kTotals) {
        sums[VALUE] += value;
        sums[SLOPE_POS] += slope_pos;
        sums[SLOPE_NEG] += slope_neg;
        sums[CURVE_POS] += curve_pos;
        sums[CURVE_NEG] += curve_neg;
        sums[CONJUGATE] += conjugate;
    }
}

void totals(int loss, int64_t begin, int64_t end, const Pointwise& at, double* sums) {
    with_loss(loss, [&](auto family) { pointwise<decltype(family), true, false>(begin, end, at, Slopes{}, sums); });
}

void slopes(int loss, int64_t begin, int64_t end, const Pointwise& at, const Slopes& to) {
    with_loss(loss, [&](auto family) { pointwise<decltype(family), false, true>(begin, end, at, to, nullptr); });
}

double shrunk_conjugate(int loss, int64_t begin, int64_t end, const Pointwise& at, double factor) {
    double total = 0;
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        const double* const weight = at.signed_weight;
        const double* const margin = at.margin;
        const double stretch = at.stretch, intercept = at.intercept, scale = at.scale;
#pragma omp simd reduction(+ : total)
        for (int64_t i = begin; i < end; ++i) {
            const double y = std::copysign(1.0, weight[i]);
            const double z = (1.0 - y * (stretch * margin[i] + intercept)) / scale;
            total += std::fabs(weight[i]) * Loss::shrunk_conjugate(z, factor);
        }
    });
    return total;
}

// --- dense and CSR rows ------------------------------------------------------------------------------------

template <class T>
struct Dense {
    const T* values;
    int64_t n_columns;
    const T* row(int64_t i) const { return values + i * n_columns; }
    Dense from(int64_t i) const { return {row(i), n_columns}; }
};

template <class T, class I>
struct Csr {
    const T* values;
    const I* indices;
    const I* indptr;
    int64_t n_columns;
    Csr from(int64_t i) const { return {values, indices, indptr + i, n_columns}; }
};

template <class F>
void with_rows(const Matrix& m, F&& body) {
    const auto typed = [&](auto zero) {
        using T = decltype(zero);
        const T* values = static_cast<const T*>(m.values);
        if (m.index_type == DENSE) {
            body(Dense<T>{values, m.n_columns});
        } else if (m.index_type == INT32) {
            body(Csr<T, int32_t>{values, static_cast<const int32_t*>(m.indices),
                                 static_cast<const int32_t*>(m.indptr), m.n_columns});
        } else {
            body(Csr<T, int64_t>{values, static_cast<const int64_t*>(m.indices),
                                 static_cast<const int64_t*>(m.indptr), m.n_columns});
        }
    };
    if (m.value_type == FLOAT32) {
        typed(float{});
    } else {
        typed(double{});
    }
}

// Four rows share each load of w or out; the last n % 4 rows go one by one.
constexpr int64_t kRows = 4;

template <class T>
inline void dot4(const Dense<T>& x, int64_t i, const double* w, double* out) {
    const T *x0 = x.row(i), *x1 = x.row(i + 1), *x2 = x.row(i + 2), *x3 = x.row(i + 3);
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t j = 0; j < x.n_columns; ++j) {
        s0 += x0[j] * w[j];
        s1 += x1[j] * w[j];
        s2 += x2[j] * w[j];
        s3 += x3[j] * w[j];
    }
    out[0] = s0;
    out[1] = s1;
    out[2] = s2;
    out[3] = s3;
}

template <class T>
inline double dot(const Dense<T>& x, int64_t i, const double* w) {
    const T* row = x.row(i);
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < x.n_columns; ++j) s += row[j] * w[j];
    return s;
}

template <class T, class I>
inline double dot(const Csr<T, I>& x, int64_t i, const double* w) {
    double s = 0;
    for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) s += x.values[k] * w[x.indices[k]];
    return s;
}

// out += r[0] x0 + ... + r[3] x3
template <class T>
inline void add4(int64_t n_columns, const T* x0, const T* x1, const T* x2, const T* x3, const double* r, double* out) {
    const double r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
#pragma omp simd
    for (int64_t j = 0; j < n_columns; ++j) out[j] += (r0 * x0[j] + r1 * x1[j]) + (r2 * x2[j] + r3 * x3[j]);
}

template <class T>
inline void add(const Dense<T>& x, int64_t i, double r, double* out) {
    const T* row = x.row(i);
#pragma omp simd
    for (int64_t j = 0; j < x.n_columns; ++j) out[j] += r * row[j];
}

template <class T, class I>
inline void add(const Csr<T, I>& x, int64_t i, double r, double* out) {
    for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) out[x.indices[k]] += r * x.values[k];
}

template <class T>
void margins_of(const Dense<T>& x, int64_t begin, int64_t end, const double* w, double* out) {
    int64_t i = begin;
    for (; i + kRows <= end; i += kRows) dot4(x, i, w, out + i);
    for (; i < end; ++i) out[i] = dot(x, i, w);
}

template <class T, class I>
void margins_of(const Csr<T, I>& x, int64_t begin, int64_t end, const double* w, double* out) {
    for (int64_t i = begin; i < end; ++i) out[i] = dot(x, i, w);
}

// Rows of a piece that stays in cache between two uses.
constexpr int64_t kPiece = 256;

template <class T>
int64_t piece_rows(const Dense<T>& x) {
    const int64_t fits = (int64_t{1} << 17) / static_cast<int64_t>(sizeof(T)) / (x.n_columns > 0 ? x.n_columns : 1);
    return fits < kRows ? kRows : fits > kPiece ? kPiece : fits;
}

template <class T, class I>
int64_t piece_rows(const Csr<T, I>&) {
    return kPiece;
}

template <class T>
void add_rows(const Dense<T>& x, const int64_t* rows, int64_t n, const double* r, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = rows + k;
        const double weights[kRows] = {r[i[0]], r[i[1]], r[i[2]], r[i[3]]};
        add4(x.n_columns, x.row(i[0]), x.row(i[1]), x.row(i[2]), x.row(i[3]), weights, out);
    }
    for (; k < n; ++k) add(x, rows[k], r[rows[k]], out);
}

template <class T, class I>
void add_rows(const Csr<T, I>& x, const int64_t* rows, int64_t n, const double* r, double* out) {
    for (int64_t k = 0; k < n; ++k) add(x, rows[k], r[rows[k]], out);
}

// squares[j] += sum_i s_i x_ij^2, over rows of a piece. Rows that weigh nothing count too: 0 times NaN is NaN.
template <class T>
void add_squares(const Dense<T>& x, int64_t begin, int64_t end, const double* signed_weight, double* squares) {
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
void add_squares(const Csr<T, I>& x, int64_t begin, int64_t end, const double* signed_weight, double* squares) {
    for (int64_t i = begin; i < end; ++i) {
        const double s = std::fabs(signed_weight[i]);
        for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) squares[x.indices[k]] += s * x.values[k] * x.values[k];
    }
}

// One piece of combine(): the rows of each label gathered, so that four of them share a pass over their sum.
template <class Rows>
void combine_piece(const Rows& x, int64_t begin, int64_t end, const double* labels, const double* r, double* out) {
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
void product_of(const Dense<T>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
                const double* p, double eta, double shift, double* out, double* sums) {
    int64_t i = begin;
    double t[kRows];
    for (; i + kRows <= end; i += kRows) {
        const double* c = weight + i;
        if (c[0] == 0.0 && c[1] == 0.0 && c[2] == 0.0 && c[3] == 0.0) continue;
        dot4(x, i, p, t);
        for (int k = 0; k < kRows; ++k) {
            t[k] = c[k] * (t[k] + tilt[i + k] * eta + shift);
            sums[0] += c[k] == 0.0 ? 0.0 : t[k] * tilt[i + k];
            sums[1] += t[k];
        }
        add4(x.n_columns, x.row(i), x.row(i + 1), x.row(i + 2), x.row(i + 3), t, out);
    }
    for (; i < end; ++i) {
        if (weight[i] == 0.0) continue;
        const double u = weight[i] * (dot(x, i, p) + tilt[i] * eta + shift);
        sums[0] += u * tilt[i];
        sums[1] += u;
        add(x, i, u, out);
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

// Rows with weight 0 are dropped, the others gathered four at a time into a padded buffer; then two rows of
// the result at once: 8 multiply-adds for 6 loads, and loops without remainders.
template <class T>
void gram_of(const Dense<T>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
             const double* direction, double* out, int64_t stride) {
    const int64_t d = x.n_columns, width = d + 1;
    std::vector<double> buffer(kRows * stride, 0.0);
    double* u[kRows];
    for (int k = 0; k < kRows; ++k) u[k] = buffer.data() + k * stride;
    const auto update = [&](const double* c) {
        const double *u0 = u[0], *u1 = u[1], *u2 = u[2], *u3 = u[3];
        for (int64_t j = 0; j < width; j += 2) {
            const double a0 = c[0] * u0[j], a1 = c[1] * u1[j], a2 = c[2] * u2[j], a3 = c[3] * u3[j];
            const double b0 = c[0] * u0[j + 1], b1 = c[1] * u1[j + 1], b2 = c[2] * u2[j + 1], b3 = c[3] * u3[j + 1];
            double* GAUSSGURU_RESTRICT ha = out + j * stride;
            double* GAUSSGURU_RESTRICT hb = ha + stride;
            const int64_t length = (j + 2 + 7) & ~int64_t{7};
#pragma omp simd
            for (int64_t k = 0; k < length; ++k) {
                ha[k] += (a0 * u0[k] + a1 * u1[k]) + (a2 * u2[k] + a3 * u3[k]);
                hb[k] += (b0 * u0[k] + b1 * u1[k]) + (b2 * u2[k] + b3 * u3[k]);
            }
        }
    };
    double c[kRows];
    int filled = 0;
    for (int64_t i = begin; i < end; ++i) {
        if (weight[i] == 0.0) continue;
        const T* row = x.row(i);
        double* to = u[filled];
        const double e = tilt[i];
#pragma omp simd
        for (int64_t j = 0; j < d; ++j) to[j] = row[j] + e * direction[j];
        to[d] = 1.0;
        c[filled++] = weight[i];
        if (filled == kRows) {
            update(c);
            filled = 0;
        }
    }
    if (filled > 0) {
        for (int k = filled; k < kRows; ++k) c[k] = 0.0;
        update(c);
    }
}

// The direction is dense: it enters once, after the sums over the rows.
template <class T, class I>
void gram_of(const Csr<T, I>& x, int64_t begin, int64_t end, const double* weight, const double* tilt,
             const double* direction, double* out, int64_t stride) {
    const int64_t d = x.n_columns;
    std::vector<double> tilts(d, 0.0);
    double* const ones = out + d * stride;
    double tilt_tilt = 0, one_tilt = 0;
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
        ones[d] += c;
    }
    for (int64_t j = 0; j < d; ++j) {
        double* const row = out + j * stride;
        const double a = direction[j], t = tilts[j] + tilt_tilt * a;
        for (int64_t k = 0; k <= j; ++k) row[k] += t * direction[k] + a * tilts[k];
        ones[j] += one_tilt * a;
    }
}

template <class T>
inline double squared_norm(const Dense<T>& x, int64_t i) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < x.n_columns; ++j) s += static_cast<double>(x.row(i)[j]) * x.row(i)[j];
    return s;
}

template <class T, class I>
inline double squared_norm(const Csr<T, I>& x, int64_t i) {
    double s = 0;
    for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) s += static_cast<double>(x.values[k]) * x.values[k];
    return s;
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

void moments(const Matrix& m, int64_t begin, int64_t end, const double* signed_weight, double* out, double* squares) {
    with_rows(m, [&](const auto& x) { moments_of(x, begin, end, signed_weight, out, squares); });
}

}  // namespace

const Kernels& GAUSSGURU_TARGET() {
    static const Kernels table{GAUSSGURU_TARGET_NAME, evaluate, totals, slopes, shrunk_conjugate, visit, margins,
                               combine, product, gram, coordinate_pass, moments};
    return table;
}

}  // namespace gaussguru
