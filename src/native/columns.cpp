// Coordinate descent on columns of few rows.
#include <vector>

#include "losses.hpp"

namespace gaussguru {
namespace {

// A coefficient has converged when its force is this fraction of its first force; the most passes over its rows.
constexpr double kFound = 0.01;
constexpr int kLooks = 16;

// F as a function of one coefficient: its rows, gathered from all others.
struct Coordinate {
    std::vector<double> weight, slack, lean;  // s, z, and minus the derivative of z by the coefficient
    int64_t n;
    double scale;

    void gather(const Columns& columns, int64_t k, const Pointwise& at) {
        const int64_t begin = columns.start[k];
        n = columns.start[k + 1] - begin;
        scale = at.scale;
        weight.resize(n);
        slack.resize(n);
        lean.resize(n);
        for (int64_t e = 0; e < n; ++e) {
            const int64_t i = columns.row[begin + e];
            const double y = std::copysign(1.0, at.signed_weight[i]);
            weight[e] = std::fabs(at.signed_weight[i]);
            slack[e] = (1.0 - y * (at.stretch * at.margin[i] + at.intercept)) / scale;
            lean[e] = y * columns.value[begin + e] / scale;
        }
    }

    // The first and second derivative of the loss after a step.
    template <class Loss>
    void look(double step, double& force, double& curve) const {
        const double *s = weight.data(), *z = slack.data(), *u = lean.data();
        double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
        for (int64_t e = 0; e < n; ++e) {
            const Terms terms = Loss::at(z[e] - u[e] * step);
            first -= s[e] * u[e] * terms.slope;
            second += s[e] * u[e] * u[e] * terms.curvature;
        }
        force = scale * first;
        curve = scale * second;
    }
};

// The best coefficient by Newton's method, within the bounds and the bracket in which the force changes its sign.
template <class Loss>
double best_of(const Coordinate& rows, double here, double l2, double most, double least, double& fall) {
    double force, curve;
    rows.look<Loss>(0.0, force, curve);
    force += l2 * here;
    const double first = force;
    if (!(std::fabs(first) > least)) return here;
    double low = -most, high = most, at = here;
    bool passed = false;  // whether the minimum is known to be before the far end
    if (first > 0.0) {
        high = here;
    } else {
        low = here;
    }
    for (int look = 1; look < kLooks && std::fabs(force) > kFound * std::fabs(first) && low < high; ++look) {
        double to = at - force / (curve + l2);
        if (!(to > low && to < high)) to = passed ? 0.5 * (low + high) : first > 0.0 ? low : high;
        at = to;
        rows.look<Loss>(at - here, force, curve);
        force += l2 * at;
        if (std::fabs(at) == most && force * first > 0.0) break;  // the bound is active
        passed = passed || force * first < 0.0;
        if (force > 0.0) {
            high = at;
        } else {
            low = at;
        }
    }
    fall += 0.5 * std::fabs(first) * std::fabs(at - here);
    return at;
}

double sweep(int loss, const Columns& columns, const Pointwise& at, double l2, double most, double least, double* w,
             double* margin) {
    double fall = 0;
    Coordinate rows;
    with_loss(loss, [&](auto family) {
        for (int64_t k = 0; k < columns.n; ++k) {
            double& coefficient = w[columns.index[k]];
            rows.gather(columns, k, at);
            const double to = best_of<decltype(family)>(rows, coefficient, l2, most, least, fall);
            const double step = to - coefficient;
            if (step == 0.0) continue;
            coefficient = to;
            for (int64_t e = columns.start[k]; e < columns.start[k + 1]; ++e) {
                margin[columns.row[e]] += step * columns.value[e];
            }
        }
    });
    return fall;
}

}  // namespace

void GAUSSGURU_TARGET::add_columns(Kernels& table) {
    table.sweep = sweep;
}

}  // namespace gaussguru
