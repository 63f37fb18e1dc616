// Rows with error bars of their own: one look at the values and errors of a row for everything that it adds to F.
#pragma once
#include "sgd.hpp"

namespace gaussguru {
namespace {

// Rows of one class lie apart: fetch the next while one is worked on.
template <class T>
inline void fetch_row(const Dense<T>& x, int64_t i) { fetch(x.row(i), x.row(i + 1)); }

template <class T, class I>
inline void fetch_row(const Csr<T, I>& x, int64_t i) {
    fetch(x.values + x.indptr[i], x.values + x.indptr[i + 1]);
}

template <class Loss, class Rows>
void measured_of(const Rows& x, const MeasuredRows& rows, const MeasuredPlace& at, const MeasuredPulls& to,
                 double* pull, double* noise, double* sums) {
    const int64_t d = x.n_columns;
    for (int64_t k = 0; k < rows.n; ++k) {
        const int64_t i = rows.index[k];
        const double* const e = rows.errors + i * d;
        if (k + 2 < rows.n) {
            const int64_t next = rows.index[k + 2];
            fetch(rows.errors + next * d, rows.errors + (next + 1) * d);
            fetch_row(x, next);
        }
        double variance = at.own;
#pragma omp simd reduction(+ : variance)
        for (int64_t j = 0; j < d; ++j) variance += e[j] * e[j] * at.squares[j];
        const double s = rows.weight[k], a = std::sqrt(variance);
        const double z = (1.0 - dot(x, i, at.u) - at.b) / a;
        const Terms terms = Loss::at(z);
        const double conjugate = terms.conjugate > 0.0 ? terms.conjugate : 0.0, t = s * conjugate / a;
        to.scale[k] = a;
        to.slack[k] = z;
        to.slope[k] = terms.slope;
        to.curve[k] = s * terms.curvature / a;
        to.tension[k] = t;
        add(x, i, s * terms.slope, pull);
#pragma omp simd
        for (int64_t j = 0; j < d; ++j) noise[j] += t * e[j] * e[j];
        sums[0] += s * a * terms.f;
        sums[1] += s * terms.slope;
        sums[2] += t;
        sums[3] += s * terms.f;
    }
}

void measured(int loss, const Matrix& m, const MeasuredRows& rows, const MeasuredPlace& at, const MeasuredPulls& to,
              double* pull, double* noise, double* sums) {
    with_loss(loss, [&](auto family) {
        with_rows(m, [&](const auto& x) { measured_of<decltype(family)>(x, rows, at, to, pull, noise, sums); });
    });
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
