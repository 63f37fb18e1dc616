// The terms of a row of the binary problem in sums over rows, from its margin.
#pragma once
#include "kernels.hpp"
#include "losses.hpp"

namespace gaussguru {
namespace {

// One loop for totals, slopes, or both; unused outputs are compiled away.
template <class Loss, bool kTotals, bool kSlopes>
GAUSSGURU_APART void pointwise(int64_t begin, int64_t end, const Pointwise& at, const Slopes& to, double* sums) {
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
            // A curvature below 1e-15 of the largest counts as 0: gram() and product() skip these rows.
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

}  // namespace
}  // namespace gaussguru
