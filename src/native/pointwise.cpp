// Loops over rows that do not read X.
#include "pointwise.hpp"

namespace gaussguru {
namespace {

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

void survey(int64_t n, const double* values, double* sum, double* least) {
    double total = 0, lowest = INFINITY;
#pragma omp simd reduction(+ : total) reduction(min : lowest)
    for (int64_t i = 0; i < n; ++i) {
        total += values[i];
        lowest = values[i] < lowest ? values[i] : lowest;
    }
    *sum = total;
    *least = lowest;
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

}  // namespace

void GAUSSGURU_TARGET::add_pointwise(Kernels& table) {
    table.evaluate = evaluate;
    table.totals = totals;
    table.slopes = slopes;
    table.shrunk_conjugate = shrunk_conjugate;
    table.survey = survey;
}

}  // namespace gaussguru
