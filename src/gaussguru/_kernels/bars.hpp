// Rows with error bars of their own: one look at the values and errors of a row for everything that it adds to F.
#pragma once
#include <vector>

#include "sgd.hpp"

namespace gaussguru {
namespace {

// Rows of one class lie apart: fetch the next ones while some are worked on.
template <class T>
inline void fetch_rows(const Dense<T>& x, int64_t n, const int64_t* index) {
    for (int64_t k = 0; k < n && k < kRows; ++k) fetch(x.row(index[k]), x.row(index[k] + 1));
}

// out = w.x of some rows.
template <class T>
inline void dots(const Dense<T>& x, int64_t n, const int64_t* index, const double* w, double* out) {
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
inline void dots(const Csr<T, I>& x, int64_t n, const int64_t* index, const double* w, double* out) {
    for (int64_t k = 0; k < n; ++k) out[k] = dot(x, index[k], w);
}

// out += the sum of r x.
template <class T>
inline void adds(const Dense<T>& x, int64_t n, const int64_t* index, const double* r, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = index + k;
        add4(x.n_columns, x.row(i[0]), x.row(i[1]), x.row(i[2]), x.row(i[3]), r + k, out);
    }
    for (; k < n; ++k) add(x, index[k], r[k], out);
}

template <class T, class I>
inline void adds(const Csr<T, I>& x, int64_t n, const int64_t* index, const double* r, double* out) {
    for (int64_t k = 0; k < n; ++k) add(x, index[k], r[k], out);
}

// The same for the squares of the errors: out = sum_j e_j^2 w_j, and out += the sum of r e^2.
inline void square_dots(const Dense<double>& e, int64_t n, const int64_t* index, const double* w, double* out) {
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

inline void square_adds(const Dense<double>& e, int64_t n, const int64_t* index, const double* r, double* out) {
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

// body(first, n) for pieces of some rows that stay in cache between two uses.
template <class F>
inline void by_pieces(int64_t n, int64_t step, F&& body) {
    for (int64_t k = 0; k < n; k += step) body(k, k + step < n ? step : n - k);
}

// Every row through two numbers, w.x and sum_j e_j^2 v_j, of which body(first, n, margin, variance) makes what it adds to
// the sums of x and of e^2.
template <class Rows, class F>
void measured_rows(const Rows& x, const MeasuredRows& rows, const double* w, const double* v, F&& body, double* pull,
                   double* noise) {
    const Dense<double> e{rows.errors, x.n_columns};
    const int64_t fits = piece_rows(e) / 2;
    double margin[kPiece], variance[kPiece];
    by_pieces(rows.n, fits < kRows ? kRows : fits, [&](int64_t k, int64_t n) {
        const int64_t* const index = rows.index + k;
        dots(x, n, index, w, margin);
        square_dots(e, n, index, v, variance);
        body(k, n, margin, variance);
        adds(x, n, index, margin, pull);
        square_adds(e, n, index, variance, noise);
    });
}

template <class Loss, class Rows>
void measured_of(const Rows& x, const MeasuredRows& rows, const MeasuredPlace& at, double* scale, double* slack,
                 double* pull, double* noise, double* sums) {
    double value = 0, mass = 0, tension = 0, gain = 0;
    const auto look = [&](int64_t first, int64_t n, double* margin, double* variance) {
        const double* const weight = rows.weight + first;
        double *const scale_of = scale + first, *const slack_of = slack + first;
#pragma omp simd reduction(+ : value, mass, tension, gain)
        for (int64_t k = 0; k < n; ++k) {
            const double s = weight[k], a = std::sqrt(variance[k] + at.own);
            const double z = (1.0 - margin[k] - at.b) / a;
            const Terms terms = Loss::at(z);
            const double t = s * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) / a;
            scale_of[k] = a;
            slack_of[k] = z;
            margin[k] = s * terms.slope;
            variance[k] = t;
            value += s * a * terms.f;
            mass += s * terms.slope;
            tension += t;
            gain += s * terms.f;
        }
    };
    measured_rows(x, rows, at.u, at.squares, look, pull, noise);
    sums[0] += value;
    sums[1] += mass;
    sums[2] += tension;
    sums[3] += gain;
}

void measured(int loss, const Matrix& m, const MeasuredRows& rows, const MeasuredPlace& at, double* scale,
              double* slack, double* pull, double* noise, double* sums) {
    with_loss(loss, [&](auto family) {
        with_rows(m, [&](const auto& x) {
            measured_of<decltype(family)>(x, rows, at, scale, slack, pull, noise, sums);
        });
    });
}

// Of the Hessian times a step: with along = (u' Sigma p + own)/a, bent = h (x.p + b + z along) and
// turned = (bent z - t along)/a.
template <class Loss, class Rows>
void measured_product_of(const Rows& x, const MeasuredRows& rows, const MeasuredPlace& at, const double* scale,
                         const double* slack, double* pull, double* noise, double* sums) {
    double bent_sum = 0, turned_sum = 0;
    const auto look = [&](int64_t first, int64_t n, double* margin, double* variance) {
        const double *const weight = rows.weight + first, *const a = scale + first, *const z = slack + first;
#pragma omp simd reduction(+ : bent_sum, turned_sum)
        for (int64_t k = 0; k < n; ++k) {
            const Terms terms = Loss::at(z[k]);
            const double inverse = 1.0 / a[k], s = weight[k] * inverse, along = (variance[k] + at.own) * inverse;
            const double bent = s * terms.curvature * (margin[k] + at.b + z[k] * along);
            const double turned = (bent * z[k] - s * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) * along) * inverse;
            margin[k] = bent;
            variance[k] = turned;
            bent_sum += bent;
            turned_sum += turned;
        }
    };
    measured_rows(x, rows, at.u, at.squares, look, pull, noise);
    sums[0] += bent_sum;
    sums[1] += turned_sum;
}

void measured_product(int loss, const Matrix& m, const MeasuredRows& rows, const MeasuredPlace& at, const double* scale,
                      const double* slack, double* pull, double* noise, double* sums) {
    with_loss(loss, [&](auto family) {
        with_rows(m, [&](const auto& x) {
            measured_product_of<decltype(family)>(x, rows, at, scale, slack, pull, noise, sums);
        });
    });
}

// A row adds h u u' with u = (x + z q, 1), and -t q q' with q = (Sigma u + own)/a, to the Hessian.
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
        const double a = scale[k], z = slack[k], inverse = 1.0 / a;
        const Terms terms = Loss::at(z);
        double *const bent = k % 2 ? r2 : r0, *const turned = k % 2 ? r3 : r1;
#pragma omp simd
        for (int64_t j = 0; j < d; ++j) {
            turned[j] = (e[j] * e[j] * u[j] + own[j]) * inverse;
            bent[j] = z * turned[j];
        }
        add(x, i, 1.0, bent);
        bent[d] = 1.0;
        c[k % 2 ? 2 : 0] = rows.weight[k] * terms.curvature * inverse;
        c[k % 2 ? 3 : 1] = -rows.weight[k] * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) * inverse;
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

// What becomes free of f* when all slopes shrink by a factor, and the sum of it times e, column by column.
double measured_room(int loss, const MeasuredRows& rows, int64_t n_columns, const double* slack, double factor,
                     double* roots) {
    double total = 0;
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        const Dense<double> e{rows.errors, n_columns};
        double free[kPiece];
        by_pieces(rows.n, piece_rows(e), [&](int64_t first, int64_t n) {
            const double *const weight = rows.weight + first, *const z = slack + first;
#pragma omp simd reduction(+ : total)
            for (int64_t k = 0; k < n; ++k) {
                const double conjugate = Loss::at(z[k]).conjugate;
                const double room = Loss::shrunk_conjugate(z[k], factor) - factor * (conjugate > 0.0 ? conjugate : 0.0);
                free[k] = weight[k] * (room > 0.0 ? room : 0.0);
                total += free[k];
            }
            adds(e, n, rows.index + first, free, roots);
        });
    });
    return total;
}

// Steps of GURU where every row has its own noise: it shrinks every coefficient by a part of its own.
template <class Loss, class Rows>
void measured_pass_of(const Rows& x, const double* errors, const Draws& draws, const Descent& by, const Iterate& at) {
    const int64_t d = x.n_columns;
    const double own = by.sigma * by.sigma;
    double* const w = at.coef;
    for (int64_t k = 0; k < draws.n; ++k) {
        const int64_t i = draws.order[k];
        const double* const e = errors + i * d;
        const double eta = by.eta0 / std::sqrt(static_cast<double>(by.steps + k + 1));
        const double signed_weight = draws.weight[i], y = std::copysign(1.0, signed_weight);
        const double slack = 1.0 - y * (dot(x, i, w) + *at.intercept);
        double variance = 0.0;
#pragma omp simd reduction(+ : variance)
        for (int64_t j = 0; j < d; ++j) variance += (own + e[j] * e[j]) * w[j] * w[j];
        double alpha = slack > 0.0, tension = 0.0;  // the limits at w = 0
        if (variance > 0.0) {
            const double a = std::sqrt(variance);
            const Terms terms = Loss::at(slack / a);
            alpha = terms.slope;
            tension = std::fabs(signed_weight) * (terms.conjugate > 0.0 ? terms.conjugate : 0.0) / a;
        }
        for (int64_t j = 0; j < d; ++j) {
            const double left = 1.0 - eta * (by.l2 + tension * (own + e[j] * e[j]));
            w[j] *= left < 0.0 ? 0.0 : left;
        }
        const double mu = eta * signed_weight * alpha;
        add(x, i, mu, w);
        if (by.fit_intercept) *at.intercept += mu;
        if (at.coef_total) {
#pragma omp simd
            for (int64_t j = 0; j < d; ++j) at.coef_total[j] += w[j];
            *at.intercept_total += *at.intercept;
        }
    }
}

void measured_pass(int loss, const Matrix& m, const double* errors, const Draws& draws, const Descent& by,
                   const Iterate& at) {
    with_loss(loss, [&](auto family) {
        with_rows(m, [&](const auto& x) { measured_pass_of<decltype(family)>(x, errors, draws, by, at); });
    });
}

}  // namespace
}  // namespace gaussguru
