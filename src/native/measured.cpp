// Rows with error bars: values and errors of a row are read once for all its terms in F and its gradient.
#include <vector>

#include "draws.hpp"
#include "losses.hpp"

namespace gaussguru {
namespace {

// The rows of a class are not contiguous: prefetch the next ones.
template <class T>
inline void fetch_rows(const Dense<T>& x, int64_t n, const int64_t* index) {
    for (int64_t k = 0; k < n && k < kRows; ++k) fetch(x.row(index[k]), x.row(index[k] + 1));
}

// out = w.x of the given rows.
template <class T>
GAUSSGURU_APART void dots(const Dense<T>& x, int64_t n, const int64_t* index, const double* w, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        fetch_rows(x, n - k - kRows, index + k + kRows);
        const T *x0 = x.row(index[k]), *x1 = x.row(index[k + 1]), *x2 = x.row(index[k + 2]), *x3 = x.row(index[k + 3]);
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t j = 0; j < x.n_columns; ++j) {
            s0 += x0[j] * w[j];
            s1 += x1[j] * w[j];
            s2 += x2[j] * w[j];
            s3 += x3[j] * w[j];
        }
        out[k] = s0;
        out[k + 1] = s1;
        out[k + 2] = s2;
        out[k + 3] = s3;
    }
    for (; k < n; ++k) out[k] = dot(x, index[k], w);
}

template <class T, class I>
GAUSSGURU_APART void dots(const Csr<T, I>& x, int64_t n, const int64_t* index, const double* w, double* out) {
    for (int64_t k = 0; k < n; ++k) out[k] = dot(x, index[k], w);
}

// out += the sum of r x.
template <class T>
GAUSSGURU_APART void adds(const Dense<T>& x, int64_t n, const int64_t* index, const double* r, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = index + k;
        add4(x.n_columns, x.row(i[0]), x.row(i[1]), x.row(i[2]), x.row(i[3]), r + k, out);
    }
    for (; k < n; ++k) add(x, index[k], r[k], out);
}

template <class T, class I>
GAUSSGURU_APART void adds(const Csr<T, I>& x, int64_t n, const int64_t* index, const double* r, double* out) {
    for (int64_t k = 0; k < n; ++k) add(x, index[k], r[k], out);
}

// The same for the squares of the errors: out = sum_j e_j^2 w_j, and out += the sum of r e^2.
GAUSSGURU_APART void square_dots(const Dense<double>& e, int64_t n, const int64_t* index, const double* w, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = index + k;
        fetch_rows(e, n - k - kRows, i + kRows);
        const double *e0 = e.row(i[0]), *e1 = e.row(i[1]), *e2 = e.row(i[2]), *e3 = e.row(i[3]);
        double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
        for (int64_t j = 0; j < e.n_columns; ++j) {
            s0 += e0[j] * e0[j] * w[j];
            s1 += e1[j] * e1[j] * w[j];
            s2 += e2[j] * e2[j] * w[j];
            s3 += e3[j] * e3[j] * w[j];
        }
        out[k] = s0;
        out[k + 1] = s1;
        out[k + 2] = s2;
        out[k + 3] = s3;
    }
    for (; k < n; ++k) {
        const double* const row = e.row(index[k]);
        double s = 0;
#pragma omp simd reduction(+ : s)
        for (int64_t j = 0; j < e.n_columns; ++j) s += row[j] * row[j] * w[j];
        out[k] = s;
    }
}

GAUSSGURU_APART void square_adds(const Dense<double>& e, int64_t n, const int64_t* index, const double* r, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = index + k;
        const double *e0 = e.row(i[0]), *e1 = e.row(i[1]), *e2 = e.row(i[2]), *e3 = e.row(i[3]);
        const double r0 = r[k], r1 = r[k + 1], r2 = r[k + 2], r3 = r[k + 3];
#pragma omp simd
        for (int64_t j = 0; j < e.n_columns; ++j) {
            out[j] += (r0 * e0[j] * e0[j] + r1 * e1[j] * e1[j]) + (r2 * e2[j] * e2[j] + r3 * e3[j] * e3[j]);
        }
    }
    for (; k < n; ++k) {
        const double* const row = e.row(index[k]);
#pragma omp simd
        for (int64_t j = 0; j < e.n_columns; ++j) out[j] += r[k] * row[j] * row[j];
    }
}

// Rows of one sign: their indices and weights.
struct Side {
    int sign;
    int64_t n;
    int64_t index[kPiece];
    double weight[kPiece];

    double y() const { return sign ? -1.0 : 1.0; }
    void gather(const double* all, double* some) const {
        for (int64_t k = 0; k < n; ++k) some[k] = all[index[k]];
    }
    void scatter(const double* some, double* all) const {
        for (int64_t k = 0; k < n; ++k) all[index[k]] = some[k];
    }
};

// Calls body(side) for the rows of each sign, in pieces that stay in cache between two uses. Rows are read in the order
// of memory, although the signs are mixed.
template <class F>
inline void by_sides(const MeasuredRows& rows, int64_t step, F&& body) {
    Side side;
    for (int64_t first = 0; first < rows.n; first += step) {
        const int64_t last = first + step < rows.n ? first + step : rows.n;
        for (side.sign = 0; side.sign < 2; ++side.sign) {
            side.n = 0;
            for (int64_t k = first; k < last; ++k) {
                const int64_t i = rows.index[k];
                side.index[side.n] = i;
                side.weight[side.n] = std::fabs(rows.weight[i]);
                side.n += std::signbit(rows.weight[i]) == (side.sign == 1);
            }
            if (side.n) body(side);
        }
    }
}

// Computes w.x and sum_j e_j^2 v_j of every row, which body(side, margin, variance) replaces by the weights of the row
// in the sums of x and of e^2; the sums of the second sign are ``apart`` numbers after those of the first.
template <class Rows, class F>
void measured_rows(const Rows& x, const MeasuredRows& rows, const double* w, const double* v, F&& body, double* pull,
                   double* noise, int64_t apart) {
    const Dense<double> e{rows.errors, x.n_columns};
    const int64_t fits = piece_rows(e) / 2;
    double margin[kPiece], variance[kPiece];
    by_sides(rows, fits < kRows ? kRows : fits, [&](const Side& side) {
        dots(x, side.n, side.index, w, margin);
        square_dots(e, side.n, side.index, v, variance);
        body(side, margin, variance);
        adds(x, side.n, side.index, margin, pull + side.sign * apart);
        square_adds(e, side.n, side.index, variance, noise + side.sign * apart);
    });
}

// The terms of a side in the value: margins become s f', variances s (f - z f')/a.
template <class Loss>
struct ValueTerms {
    const MeasuredPlace& at;
    double *scale, *slack, *out;
    int64_t n_columns, apart;

    GAUSSGURU_APART void operator()(const Side& side, double* margin, double* variance) const {
        double scales[kPiece], slacks[kPiece];
        const double y = side.y();
        double value = 0, mass = 0, tension = 0, gain = 0;
#pragma omp simd reduction(+ : value, mass, tension, gain)
        for (int64_t k = 0; k < side.n; ++k) {
            const double s = side.weight[k], a = std::sqrt(variance[k] + at.own);
            const double z = (1.0 - y * (margin[k] + at.b)) / a;
            const Terms terms = Loss::at(z);
            const double t = s * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) / a;
            scales[k] = a;
            slacks[k] = z;
            margin[k] = s * terms.slope;
            variance[k] = t;
            value += s * a * terms.f;
            mass += s * terms.slope;
            tension += t;
            gain += s * terms.f;
        }
        side.scatter(scales, scale);
        side.scatter(slacks, slack);
        double* const sums = out + side.sign * apart + 2 * n_columns;
        sums[0] += value;
        sums[1] += mass;
        sums[2] += tension;
        sums[3] += gain;
    }
};

void measured(int loss, const Matrix& m, const MeasuredRows& rows, const MeasuredPlace& at, double* scale,
              double* slack, double* out) {
    const int64_t d = m.n_columns, apart = 2 * d + 4;
    with_loss(loss, [&](auto family) {
        const ValueTerms<decltype(family)> terms{at, scale, slack, out, d, apart};
        with_rows(m, [&](const auto& x) { measured_rows(x, rows, at.u, at.squares, terms, out, out + d, apart); });
    });
}

// The Hessian times a step: with along = (u' Sigma p + own)/a, margins become bent = h (x.p + b + y z along) and
// variances turned = (y bent z - t along)/a.
template <class Loss>
struct ProductTerms {
    const MeasuredPlace& at;
    const double *scale, *slack;
    double* sums;

    GAUSSGURU_APART void operator()(const Side& side, double* margin, double* variance) const {
        double a[kPiece], z[kPiece];
        side.gather(scale, a);
        side.gather(slack, z);
        const double y = side.y();
        double bent_sum = 0, turned_sum = 0;
#pragma omp simd reduction(+ : bent_sum, turned_sum)
        for (int64_t k = 0; k < side.n; ++k) {
            const Terms terms = Loss::at(z[k]);
            const double inverse = 1.0 / a[k], s = side.weight[k] * inverse, along = (variance[k] + at.own) * inverse;
            const double bent = s * terms.curvature * (margin[k] + at.b + y * z[k] * along);
            const double turned =
                (y * bent * z[k] - s * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) * along) * inverse;
            margin[k] = bent;
            variance[k] = turned;
            bent_sum += bent;
            turned_sum += turned;
        }
        sums[0] += bent_sum;
        sums[1] += turned_sum;
    }
};

void measured_product(int loss, const Matrix& m, const MeasuredRows& rows, const MeasuredPlace& at, const double* scale,
                      const double* slack, double* out) {
    const int64_t d = m.n_columns;
    with_loss(loss, [&](auto family) {
        const ProductTerms<decltype(family)> terms{at, scale, slack, out + 2 * d};
        with_rows(m, [&](const auto& x) { measured_rows(x, rows, at.u, at.squares, terms, out, out + d, 0); });
    });
}

// The Hessian: the sum over rows of h v v' - t q q' with v = (x + y z q, 1) and q = (Sigma u + own)/a.
template <class Loss, class Rows>
void measured_gram_of(const Rows& x, const MeasuredRows& rows, const double* u, const double* own, const double* scale,
                      const double* slack, double* out, int64_t stride) {
    const int64_t d = x.n_columns;
    std::vector<double> buffer(kRows * stride, 0.0);
    double *const r0 = buffer.data(), *const r1 = r0 + stride, *const r2 = r1 + stride, *const r3 = r2 + stride;
    const double* const four[kRows] = {r0, r1, r2, r3};
    double c[kRows];
    for (int64_t k = 0; k < rows.n; ++k) {
        const int64_t i = rows.index[k];
        const double* const e = rows.errors + i * d;
        const double s = std::fabs(rows.weight[i]), y = std::copysign(1.0, rows.weight[i]);
        const double inverse = 1.0 / scale[i], tilt = y * slack[i];
        const Terms terms = Loss::at(slack[i]);
        double *const bent = k % 2 ? r2 : r0, *const turned = k % 2 ? r3 : r1;
#pragma omp simd
        for (int64_t j = 0; j < d; ++j) {
            turned[j] = (e[j] * e[j] * u[j] + own[j]) * inverse;
            bent[j] = tilt * turned[j];
        }
        add(x, i, 1.0, bent);
        bent[d] = 1.0;
        c[k % 2 ? 2 : 0] = s * terms.curvature * inverse;
        c[k % 2 ? 3 : 1] = -s * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) * inverse;
        if (k % 2 == 0 && k + 1 == rows.n) c[2] = c[3] = 0.0;
        if (k % 2 || k + 1 == rows.n) add_squares_of_four(four, c, d + 1, out, stride);
    }
}

void measured_gram(int loss, const Matrix& m, const MeasuredRows& rows, const double* u, const double* own,
                   const double* scale, const double* slack, double* out, int64_t stride) {
    with_loss(loss, [&](auto family) {
        with_rows(m, [&](const auto& x) {
            measured_gram_of<decltype(family)>(x, rows, u, own, scale, slack, out, stride);
        });
    });
}

// The room r that shrinking all slopes by a factor frees: the sum of r e by column, left out without errors, the sum of
// r, and the sum of its geometric mean with s f*.
void measured_room(int loss, const MeasuredRows& rows, int64_t n_columns, const double* slack, double factor,
                   double* out) {
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        const Dense<double> e{rows.errors, n_columns};
        double z[kPiece], free[kPiece];
        by_sides(rows, piece_rows(e), [&](const Side& side) {
            side.gather(slack, z);
            double total = 0, bend = 0;
#pragma omp simd reduction(+ : total, bend)
            for (int64_t k = 0; k < side.n; ++k) {
                const double at = Loss::at(z[k]).conjugate, conjugate = at > 0.0 ? at : 0.0;
                const double left = Loss::shrunk_conjugate(z[k], factor) - factor * conjugate;
                const double room = left > 0.0 ? left : 0.0;
                free[k] = side.weight[k] * room;
                total += free[k];
                bend += side.weight[k] * std::sqrt(room * conjugate);
            }
            double* const roots = out + side.sign * (n_columns + 2);
            roots[n_columns] += total;
            roots[n_columns + 1] += bend;
            if (rows.errors) adds(e, side.n, side.index, free, roots);
        });
    });
}

}  // namespace

void GAUSSGURU_TARGET::add_measured(Kernels& table) {
    table.measured = measured;
    table.measured_product = measured_product;
    table.measured_gram = measured_gram;
    table.measured_room = measured_room;
}

}  // namespace gaussguru
