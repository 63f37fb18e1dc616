// The multiclass problem: every row is compared with every class but its own. Loops over cells, the rows of one class
// compared with another, and the two products of X with matrices of a row for each sample or feature.
#include <vector>

#include "losses.hpp"
#include "rows.hpp"

namespace gaussguru {
namespace {

// The number of rows sorted by class at a time: enough for long runs of each class, few enough to stay in cache.
constexpr int64_t kBatch = 2048;

template <class Loss, bool kPulls>
void cell(int64_t n, const double* s, const double* margin, double shift, double scale, double* residual,
          double* curve_of, double* tilt, double* sums) {
    double value = 0, slope_sum = 0, conjugate = 0, curve_sum = 0, curve_z = 0, curve_zz = 0;
#pragma omp simd reduction(+ : value, slope_sum, conjugate, curve_sum, curve_z, curve_zz)
    for (int64_t i = 0; i < n; ++i) {
        const double z = (1.0 - margin[i] - shift) / scale;
        const Terms terms = Loss::at(z);
        const double slope = s[i] * terms.slope;
        // As in pointwise(), tiny curvatures count as 0; so does their product with z, because z may be infinite.
        const double curve = terms.curvature > 1e-16 ? s[i] * terms.curvature : 0.0;
        const double turned = curve > 0.0 ? curve * z : 0.0;
        if (kPulls) {
            residual[i] = slope;
            curve_of[i] = curve / scale;
            tilt[i] = z;
        }
        value += s[i] * terms.f;
        slope_sum += slope;
        conjugate += s[i] * terms.conjugate;
        curve_sum += curve;
        curve_z += turned;
        curve_zz += curve > 0.0 ? turned * z : 0.0;
    }
    sums[CELL_VALUE] += value;
    sums[CELL_SLOPE] += slope_sum;
    sums[CELL_CONJUGATE] += conjugate;
    sums[CELL_CURVE] += curve_sum;
    sums[CELL_CURVE_Z] += curve_z;
    sums[CELL_CURVE_ZZ] += curve_zz;
}

// The rows begin:end by class: calls body(class, number of rows, their positions) for each class that occurs.
template <class F>
void by_class(int64_t begin, int64_t end, int64_t n_classes, const int32_t* labels, F&& body) {
    std::vector<int64_t> start(n_classes + 1), order(kBatch);
    for (int64_t first = begin; first < end; first += kBatch) {
        const int64_t last = first + kBatch < end ? first + kBatch : end;
        for (int64_t c = 0; c <= n_classes; ++c) start[c] = 0;
        for (int64_t i = first; i < last; ++i) ++start[labels[i] + 1];
        for (int64_t c = 0; c < n_classes; ++c) start[c + 1] += start[c];
        std::vector<int64_t> next(start.begin(), start.end());
        for (int64_t i = first; i < last; ++i) order[next[labels[i]]++] = i;
        for (int64_t c = 0; c < n_classes; ++c) {
            if (start[c + 1] > start[c]) body(c, start[c + 1] - start[c], order.data() + start[c]);
        }
    }
}

template <class Loss, bool kPulls>
void cells_of(int64_t begin, int64_t end, const Joint& at, const JointPulls& to, double* sums) {
    const int64_t C = at.n_classes;
    std::vector<double> scratch(5 * kBatch);
    double *s = scratch.data(), *margin = s + kBatch, *residual = margin + kBatch, *curve = residual + kBatch,
           *tilt = curve + kBatch;
    by_class(begin, end, C, at.labels, [&](int64_t c, int64_t n, const int64_t* rows) {
        for (int64_t j = 0; j < n; ++j) {
            s[j] = at.weights[rows[j]];
            if (kPulls) {
                to.residual[rows[j] * C + c] = 0.0;
                to.curve[rows[j] * C + c] = 0.0;
                to.tilt[rows[j] * C + c] = 0.0;
            }
        }
        for (int64_t k = 0; k < C; ++k) {
            if (k == c) continue;
            for (int64_t j = 0; j < n; ++j) {
                const double* q = at.scores + rows[j] * C;
                margin[j] = at.stretch * (q[c] - q[k]);
            }
            cell<Loss, kPulls>(n, s, margin, at.intercepts[c] - at.intercepts[k], at.scales[c * C + k], residual, curve,
                               tilt, sums + (c * C + k) * N_CELL);
            if (!kPulls) continue;
            for (int64_t j = 0; j < n; ++j) {
                const int64_t there = rows[j] * C;
                to.residual[there + k] = residual[j];
                to.residual[there + c] -= residual[j];
                to.curve[there + k] = curve[j];
                to.tilt[there + k] = tilt[j];
            }
        }
    });
}

void cells(int loss, int64_t begin, int64_t end, const Joint& at, const JointPulls& to, double* sums) {
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        if (to.residual) {
            cells_of<Loss, true>(begin, end, at, to, sums);
        } else {
            cells_of<Loss, false>(begin, end, at, to, sums);
        }
    });
}

void shrunk_cells(int loss, int64_t begin, int64_t end, const Joint& at, double factor, double* sums) {
    const int64_t C = at.n_classes;
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        std::vector<double> scratch(2 * kBatch);
        double *s = scratch.data(), *z = s + kBatch;
        by_class(begin, end, C, at.labels, [&](int64_t c, int64_t n, const int64_t* rows) {
            for (int64_t j = 0; j < n; ++j) s[j] = at.weights[rows[j]];
            for (int64_t k = 0; k < C; ++k) {
                if (k == c) continue;
                const double shift = at.intercepts[c] - at.intercepts[k], scale = at.scales[c * C + k];
                for (int64_t j = 0; j < n; ++j) {
                    const double* q = at.scores + rows[j] * C;
                    z[j] = (1.0 - at.stretch * (q[c] - q[k]) - shift) / scale;
                }
                double total = 0;
#pragma omp simd reduction(+ : total)
                for (int64_t j = 0; j < n; ++j) total += s[j] * Loss::shrunk_conjugate(z[j], factor);
                sums[c * C + k] += total;
            }
        });
    });
}

void bend(int64_t begin, int64_t end, int64_t n_classes, const int32_t* labels, const double* scores,
          const double* shifts, const double* eta, const double* curve, const double* tilt, double* out,
          double* turns) {
    const int64_t C = n_classes;
    for (int64_t i = begin; i < end; ++i) {
        const int64_t c = labels[i];
        const double *h = curve + i * C, *e = tilt + i * C, *q = scores + i * C, *slope = eta + c * C;
        double *y = out + i * C, *turn = turns + c * C;
        const double own = q[c] + shifts[c];
        double total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t k = 0; k < C; ++k) {
            // For class c itself h is 0. Without curvature z may be infinite and must not be used.
            const double z = h[k] > 0.0 ? e[k] : 0.0;
            const double u = h[k] * (own - q[k] - shifts[k] + z * slope[k]);
            y[k] = -u;
            turn[k] += u * z;
            total += u;
        }
        y[c] += total;
    }
}

// out = X W' and out += X' R by rows; W is stored as n_columns x n_classes: a nonzero multiplies a contiguous row.
template <class Rows>
void joint_scores_of(const Rows& x, int64_t begin, int64_t end, int64_t n_classes, const double* w, double* out) {
    for (int64_t i = begin; i < end; ++i) {
        double* const q = out + i * n_classes;
        for (int64_t k = 0; k < n_classes; ++k) q[k] = 0.0;
        each_entry(x, i, [&](int64_t j, double value) {
            const double* const row = w + j * n_classes;
#pragma omp simd
            for (int64_t k = 0; k < n_classes; ++k) q[k] += value * row[k];
        });
    }
}

template <class Rows>
void joint_combine_of(const Rows& x, int64_t begin, int64_t end, int64_t n_classes, const double* r, double* out) {
    for (int64_t i = begin; i < end; ++i) {
        const double* const weights = r + i * n_classes;
        each_entry(x, i, [&](int64_t j, double value) {
            double* const row = out + j * n_classes;
#pragma omp simd
            for (int64_t k = 0; k < n_classes; ++k) row[k] += value * weights[k];
        });
    }
}

void joint_scores(const Matrix& m, int64_t begin, int64_t end, int64_t n_classes, const double* w, double* out) {
    with_rows(m, [&](const auto& x) { joint_scores_of(x, begin, end, n_classes, w, out); });
}

void joint_combine(const Matrix& m, int64_t begin, int64_t end, int64_t n_classes, const double* r, double* out) {
    with_rows(m, [&](const auto& x) { joint_combine_of(x, begin, end, n_classes, r, out); });
}

}  // namespace

void GAUSSGURU_TARGET::add_joint(Kernels& table) {
    table.cells = cells;
    table.shrunk_cells = shrunk_cells;
    table.bend = bend;
    table.joint_scores = joint_scores;
    table.joint_combine = joint_combine;
}

}  // namespace gaussguru
