// Stochastic gradient descent, the algorithms of the thesis: GURU, M-GURU and M-GURU-S2.
//
// A step on row x changes w to gamma w + mu x. So that it costs only the non-zeros of x, w is kept as c v with a
// scalar c (for many classes a matrix, sgd_joint.cpp), ||w||^2 (the Gram matrix of the classes) is updated from the
// scores, and the sum of the iterates is C v + total. C is the sum of the scales, and a change of v subtracts C times
// itself from the total. At the end of a call w and the sum of the iterates are written back.
#include <type_traits>

#include "draws.hpp"
#include "losses.hpp"

namespace gaussguru {
namespace {

// A change whose square is at most this fraction of ||w||^2 is below rounding: v is not read.
constexpr double kNothing = 1e-34;
// The least scale of w. The sum of the iterates loses as many digits as the scale has.
constexpr double kLeastScale = 1e-9, kLeastScaleSummed = 1e-4;

// For kernels, a step changes the coefficient of its own sample, and the norm is known from the updates only.
inline Projection project(const KernelRows& x, int64_t i, const double* v) {
    const double* const row = x.values + i * x.n_columns;
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < x.n_columns; ++j) sum += row[j] * v[j];
    return {sum, x.squared_norm[i]};
}

inline void add(const KernelRows& x, int64_t i, double step, double* v) { v[x.place[i]] += step; }

template <>
struct Ahead<KernelRows> {
    Ahead(const KernelRows&, const Draws&) {}
    void operator()(int64_t) const {}  // rows are read in order: hardware prefetching suffices
};

template <class Loss, bool kSummed, class Rows>
double sgd_pass_of(const Rows& x, const Draws& draws, const Descent& by, const Iterate& at, double square = 0.0) {
    constexpr bool kMeasured = !std::is_same<Rows, KernelRows>::value;
    double* const v = at.coef;
    double* const total = at.coef_total;
    const Ahead<Rows> ahead(x, draws);
    double c = 1.0, sum = 0.0, doubt = 0.0, b = *at.intercept, b_total = 0.0, lengths = 0.0;
    const auto settle = [&] {
        double measured = 0.0;
#pragma omp simd reduction(+ : measured)
        for (int64_t j = 0; j < x.n_columns; ++j) {
            if (kSummed) total[j] += sum * v[j];
            v[j] *= c;
            measured += v[j] * v[j];
        }
        if (kMeasured) square = measured;
        c = 1.0;
        sum = doubt = 0.0;
    };
    settle();
    for (int64_t k = 0; k < draws.n; ++k) {
        ahead(k);
        const int64_t i = draws.order[k];
        const double eta = by.eta0 / std::sqrt(static_cast<double>(by.steps + k + 1));
        const double signed_weight = draws.weight[i], y = std::copysign(1.0, signed_weight);
        const double inverse = 1.0 / std::sqrt(square);  // of ||w||
        const Projection row = project(x, i, v);
        const double q = c * row.dot;
        lengths += row.square;
        const double slack = 1.0 - y * (q + b);
        double alpha = slack > 0.0, shrink = by.l2;  // the limits at w = 0
        if (square > 0.0) {
            const Terms terms = Loss::at(slack * (inverse / by.sigma));
            alpha = terms.slope;
            shrink += std::fabs(signed_weight) * by.sigma * terms.conjugate * inverse;
        }
        const double left = 1.0 - eta * shrink, gamma = left < 0.0 ? 0.0 : left;
        const double mu = eta * signed_weight * alpha;
        c *= gamma;
        square *= gamma * gamma;
        doubt *= gamma * gamma;
        if (c < (kSummed ? kLeastScaleSummed : kLeastScale)) settle();
        const double added = mu * mu * row.square;
        if (added > kNothing * square) {
            const double step = mu / c;
            add(x, i, step, v);
            if (kSummed) add(x, i, -sum * step, total);
            doubt += kRounding * (square + added);
            square += 2.0 * gamma * mu * q + added;
            if (square < 0.0) square = 0.0;  // rounding, if a step undoes all previous ones
        }
        if (by.fit_intercept) b += mu;
        sum += c;
        b_total += b;
        if (kMeasured && doubt > kDoubt * square) settle();
    }
    const double maintained = square;
    settle();
    *at.intercept = b + 0.0 * lengths;  // NaN, if a row was not finite
    if (kSummed) *at.intercept_total += b_total;
    return maintained;
}

double sgd_pass(int loss, const Matrix& m, const Draws& draws, const Descent& by, const Iterate& at) {
    double square = 0.0;
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        with_rows(m, [&](const auto& x) {
            square = at.coef_total ? sgd_pass_of<Loss, true>(x, draws, by, at)
                                   : sgd_pass_of<Loss, false>(x, draws, by, at);
        });
    });
    return square;
}

double kernel_pass(int loss, const KernelRows& x, const Draws& draws, const Descent& by, const Iterate& at,
                   double square) {
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        square = at.coef_total ? sgd_pass_of<Loss, true>(x, draws, by, at, square)
                               : sgd_pass_of<Loss, false>(x, draws, by, at, square);
    });
    return square;
}

void squared_norms(const Matrix& m, int64_t begin, int64_t end, double* out) {
    with_rows(m, [&](const auto& x) {
        for (int64_t i = begin; i < end; ++i) out[i] = squared_norm(x, i);
    });
}

// Steps of GURU with error bars: every coefficient shrinks by its own factor.
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

void GAUSSGURU_TARGET::add_sgd(Kernels& table) {
    table.sgd_pass = sgd_pass;
    table.kernel_pass = kernel_pass;
    table.measured_pass = measured_pass;
    table.squared_norms = squared_norms;
}

}  // namespace gaussguru
