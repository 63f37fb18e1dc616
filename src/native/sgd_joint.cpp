// Stochastic gradient descent for many classes: M-GURU and M-GURU-S2 of the thesis. See sgd.cpp; the scale of w is here a
// matrix M, and its squared length the Gram matrix of the classes.
#include <type_traits>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "losses.hpp"

namespace gaussguru {
namespace {

// The least scale of w: the mean of the classes is not scaled, so it loses as many digits as their differences.
constexpr double kLeastScaleMixed = 1e-3;

// The values of row i and the columns where they are.
template <class T, class F>
inline void with_values(const Dense<T>& x, int64_t i, F&& body) {
    body(x.row(i), [](int64_t l) { return l; }, x.n_columns);
}

template <class T, class I, class F>
inline void with_values(const Csr<T, I>& x, int64_t i, F&& body) {
    const I begin = x.indptr[i];
    const I* const indices = x.indices + begin;
    body(x.values + begin, [indices](int64_t l) { return static_cast<int64_t>(indices[l]); }, x.indptr[i + 1] - begin);
}

// Calls body(first, n) for runs of classes whose length the compiler knows, so that it keeps their sums in registers.
template <class F>
inline void by_runs(int64_t width, F&& body) {
    int64_t first = 0;
    for (; width - first > 20; first += 20) body(first, std::integral_constant<int64_t, 20>{});
    switch (width - first) {
        case 4: body(first, std::integral_constant<int64_t, 4>{}); break;
        case 8: body(first, std::integral_constant<int64_t, 8>{}); break;
        case 12: body(first, std::integral_constant<int64_t, 12>{}); break;
        case 16: body(first, std::integral_constant<int64_t, 16>{}); break;
        case 20: body(first, std::integral_constant<int64_t, 20>{}); break;
    }
}

// out = sum_j x_ij V_j, for V with `width` numbers a column of X.
template <class Rows>
GAUSSGURU_APART void scores(const Rows& x, int64_t i, const double* V, int64_t width, double* out) {
    with_values(x, i, [&](const auto* values, const auto& column, int64_t n) {
        by_runs(width, [&](int64_t first, auto run) {
            constexpr int64_t kRun = decltype(run)::value;
            double even[kRun] = {}, odd[kRun] = {};
            int64_t l = 0;
            for (; l + 2 <= n; l += 2) {
                const double *v0 = V + column(l) * width + first, *v1 = V + column(l + 1) * width + first;
                const double x0 = values[l], x1 = values[l + 1];
#pragma omp simd
                for (int64_t c = 0; c < kRun; ++c) {
                    even[c] += x0 * v0[c];
                    odd[c] += x1 * v1[c];
                }
            }
            if (l < n) {
                const double* const v = V + column(l) * width + first;
                for (int64_t c = 0; c < kRun; ++c) even[c] += values[l] * v[c];
            }
            for (int64_t c = 0; c < kRun; ++c) out[first + c] = even[c] + odd[c];
        });
    });
}

// V_j += x_ij u
template <class Rows>
GAUSSGURU_APART void add_outer(const Rows& x, int64_t i, const double* u, int64_t width, double* V) {
    with_values(x, i, [&](const auto* values, const auto& column, int64_t n) {
        by_runs(width, [&](int64_t first, auto run) {
            constexpr int64_t kRun = decltype(run)::value;
            double part[kRun];
            for (int64_t c = 0; c < kRun; ++c) part[c] = u[first + c];
            for (int64_t l = 0; l < n; ++l) {
                double* const v = V + column(l) * width + first;
                const double value = values[l];
#pragma omp simd
                for (int64_t c = 0; c < kRun; ++c) v[c] += value * part[c];
            }
        });
    });
}

// A small square matrix, its rows padded to whole vectors.
struct Square {
    int64_t width;
    std::vector<double> values;
    explicit Square(int64_t n) : width(n), values(n * n, 0.0) {}
    double* operator[](int64_t i) { return values.data() + i * width; }
    void set_identity() {
        values.assign(values.size(), 0.0);
        for (int64_t i = 0; i < width; ++i) (*this)[i][i] = 1.0;
    }
    void transpose() {
        for (int64_t i = 0; i < width; ++i)
            for (int64_t j = 0; j < i; ++j) std::swap((*this)[i][j], (*this)[j][i]);
    }
    // out = this u
    GAUSSGURU_APART void times(const double* u, double* out) {
        for (int64_t i = 0; i < width; ++i) {
            const double* const row = (*this)[i];
            double s = 0.0;
#pragma omp simd reduction(+ : s)
            for (int64_t j = 0; j < width; ++j) s += row[j] * u[j];
            out[i] = s;
        }
    }
    // to += factor from, rows of the same or of different matrices
    void add(const double* from, double factor, double* to) const {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) to[j] += factor * from[j];
    }
    void scale(double factor, double* row) const {
#pragma omp simd
        for (int64_t j = 0; j < width; ++j) row[j] *= factor;
    }
};

// What one step does to the classes before x is added: W <- A W. Every class k is drawn towards class y by kap_k, and
// y towards all of them, with `keep` = 1 less the ridge on the diagonal:
//     w_k <- (keep - kap_k) w_k + kap_k w_y,      w_y <- (keep - sum kap) w_y + sum kap_k w_k.
// Where only one class r moves, A is the identity but for its row r. kap_y = 0.
struct Mixing {
    const double* kap;
    double keep;
    int64_t y, r;  // r < 0: all classes move

    // matrix <- A matrix; `spare` is as long as a row.
    GAUSSGURU_APART void apply(Square& matrix, double* spare) const {
        const int64_t width = matrix.width, moved = r < 0 ? y : r;
        double pull = 0.0;
        for (int64_t j = 0; j < width; ++j) spare[j] = 0.0;
        if (moved == y) {
            for (int64_t k = 0; k < width; ++k) {
                if (kap[k] != 0.0) matrix.add(matrix[k], kap[k], spare);
                pull += kap[k];
            }
        } else {
            pull = kap[r];
            matrix.add(matrix[y], pull, spare);
        }
        matrix.add(matrix[moved], keep - pull, spare);
        if (r < 0) {
            for (int64_t k = 0; k < width; ++k) {
                if (k == y) continue;
                matrix.scale(keep - kap[k], matrix[k]);
                matrix.add(matrix[y], kap[k], matrix[k]);
            }
        }
        for (int64_t j = 0; j < width; ++j) matrix[moved][j] = spare[j];
    }

    // matrix <- A^-T matrix, for A away from singular.
    GAUSSGURU_APART void apply_inverse_transposed(Square& matrix) const {
        const int64_t width = matrix.width;
        if (r < 0) {
            // A is symmetric, an arrowhead: eliminate all rows but y, then substitute back.
            double* const row = matrix[y];
            double pivot = keep;
            for (int64_t k = 0; k < width; ++k) {
                if (k == y) continue;
                pivot -= kap[k] + kap[k] * kap[k] / (keep - kap[k]);
                matrix.scale(1.0 / (keep - kap[k]), matrix[k]);
                matrix.add(matrix[k], -kap[k], row);
            }
            matrix.scale(1.0 / pivot, row);
            for (int64_t k = 0; k < width; ++k) {
                if (k != y) matrix.add(row, -kap[k] / (keep - kap[k]), matrix[k]);
            }
        } else {
            double pivot = keep - kap[r];
            if (r == y) {
                for (int64_t k = 0; k < width; ++k) pivot -= kap[k];
            }
            matrix.scale(1.0 / pivot, matrix[r]);
            if (r == y) {
                for (int64_t k = 0; k < width; ++k) {
                    if (kap[k] != 0.0) matrix.add(matrix[r], -kap[k], matrix[k]);
                }
            } else {
                matrix.add(matrix[r], -kap[r], matrix[y]);
            }
        }
    }
};

// A row of class y against every class: the Gram matrix of the classes (its row y and its diagonal), scores, intercepts.
struct Pairs {
    int64_t y, n_classes, width;
    const double *row, *diagonal, *scores, *intercepts;
    double sigma, step;
};

// alpha, and kap = step sigma f*/||w_y - w_c||, of every pair; their limits where w_y = w_c. Returns the least squared
// distance of w_y and another class, or its squared length if that is less.
using PairTerms = double(const Pairs&, double* alpha, double* kap);

template <class Loss>
double pair_terms(const Pairs& at, double* alpha, double* kap) {
    const double own = at.row[at.y], score = at.scores[at.y] + at.intercepts[at.y];
    double least = own;
#pragma omp simd reduction(min : least)
    for (int64_t c = 0; c < at.width; ++c) {
        const bool pair = c != at.y && c < at.n_classes;
        const double square = own + at.diagonal[c] - 2.0 * at.row[c];
        const double slack = 1.0 - score + (at.scores[c] + at.intercepts[c]);
        const bool apart = square > 0.0;
        const double over = apart ? 1.0 / std::sqrt(square) : 0.0;
        const Terms terms = Loss::at(slack * (over / at.sigma));
        const double slope = apart ? terms.slope : slack > 0.0 ? 1.0 : 0.0;
        alpha[c] = pair ? slope : 0.0;
        kap[c] = pair ? at.step * at.sigma * terms.conjugate * over : 0.0;
        least = pair && square < least ? square : least;
    }
    return least;
}

// W (classes x features) is M V', V having `width` numbers a feature: the classes, padded with zeros. Kept with it are
// the inverse of M, the Gram matrix W W' and the sum of the M's, in the part of the scale c of two classes, of its
// inverse, of ||w||^2 and of the sum of the scales.
template <class Rows>
void sgd_joint_pass_of(PairTerms* terms, const Rows& x, const Draws& draws, const Descent& by, const Labels& labels,
                       const Iterate& at) {
    const bool summed = at.coef_total != nullptr;
    const int64_t d = x.n_columns, n_classes = labels.n_classes, width = padded(n_classes);
    const double many = static_cast<double>(n_classes);
    const Ahead<Rows> ahead(x, draws);
    Square mix(width), inverse(width) /* transposed */, sums(width), gram(width);
    std::vector<double> work(8 * width);
    double *const raw = work.data(), *const q = raw + width, *const alpha = q + width, *const kap = alpha + width,
                  *const move = kap + width, *const u = move + width, *const spare = u + width, *const b_sum = spare + width;
    double* const b = at.intercept;
    double doubt = 0.0, lengths = 0.0;
    int64_t stale = 0;

    const auto measure = [&] {
        gram.values.assign(gram.values.size(), 0.0);
        for (int64_t j = 0; j < d; ++j) {
            const double* const v = at.coef + j * width;
            for (int64_t c = 0; c < n_classes; ++c) gram.add(v, v[c], gram[c]);
        }
        doubt = 0.0;
        stale = 0;
    };
    const auto unmix = [&] {
        mix.transpose();
        sums.transpose();
        for (int64_t j = 0; j < d; ++j) {
            double *const v = at.coef + j * width, *const total = at.coef_total + (summed ? j * width : 0);
            for (int64_t c = 0; c < width; ++c) spare[c] = 0.0;
            for (int64_t c = 0; c < n_classes; ++c) {
                gram.add(mix[c], v[c], spare);
                if (summed) gram.add(sums[c], v[c], total);
            }
            for (int64_t c = 0; c < width; ++c) v[c] = spare[c];
        }
        mix.set_identity();
        inverse.set_identity();
        sums.values.assign(sums.values.size(), 0.0);
    };
    const auto settle = [&] {
        unmix();
        measure();
    };

    mix.set_identity();
    inverse.set_identity();
    measure();
    for (int64_t k = 0; k < draws.n; ++k) {
        ahead(k);
        const int64_t i = draws.order[k], y = labels.label[i], r = labels.moved ? labels.moved[k] : -1;
        double eta = by.eta0 / std::sqrt(static_cast<double>(by.steps + k + 1));
        if (r >= 0) eta *= many;  // each class moves in one of `many` steps
        const double step = eta * draws.weight[i];

        scores(x, i, at.coef, width, raw);
        mix.times(raw, q);

        for (int64_t c = 0; c < n_classes; ++c) spare[c] = gram[c][c];
        const double least = terms({y, n_classes, width, gram[y], spare, q, b, by.sigma, step}, alpha, kap);

        // No step may change the sign of a difference of classes: the largest eigenvalue of the mixing is
        // at most the sum of the kaps and their largest.
        double total = 0.0, largest = 0.0, slopes = 0.0;
        for (int64_t c = 0; c < n_classes; ++c) {
            total += kap[c];
            slopes += alpha[c];
            largest = kap[c] > largest ? kap[c] : largest;
        }
        const double ridge = eta * by.l2 * many, keep = ridge < 1.0 ? 1.0 - ridge : 0.0;
        const double pull = r < 0 ? total + largest : r == y ? total : kap[r];
        double weakest = keep - pull;
        if (weakest < 0.0) {
            for (int64_t c = 0; c < n_classes; ++c) kap[c] *= keep / pull;
            weakest = 0.0;
        }
        for (int64_t c = 0; c < width; ++c) move[c] = r < 0 || c == r ? -step * alpha[c] : 0.0;
        if (r < 0 || r == y) move[y] = step * slopes;

        const Mixing mixing{kap, keep, y, r};
        mixing.apply(mix, spare);
        mix.times(raw, q);  // the scores of the mixed classes
        double inflation = 0.0;
        if (weakest > kLeastScaleMixed) {
            mixing.apply_inverse_transposed(inverse);
#pragma omp simd reduction(max : inflation)
            for (size_t l = 0; l < inverse.values.size(); ++l) {
                const double size = std::fabs(inverse.values[l]);
                inflation = size > inflation ? size : inflation;
            }
        }
        if (weakest > kLeastScaleMixed && inflation * kLeastScaleMixed < 1.0) {
            mixing.apply(gram, spare);
            gram.transpose();
            mixing.apply(gram, spare);
        } else {
            settle();
        }

        for (int64_t c = 0; c < width; ++c) u[c] = 0.0;
        for (int64_t c = 0; c < n_classes; ++c) {
            if (move[c] != 0.0) gram.add(inverse[c], move[c], u);
        }
        add_outer(x, i, u, width, at.coef);
        if (summed) {
            sums.times(u, spare);
            for (int64_t c = 0; c < width; ++c) spare[c] = -spare[c];
            add_outer(x, i, spare, width, at.coef_total);
        }

        const double norm = squared_norm(x, i);
        lengths += norm;
        double trace = 0.0, added = 0.0;
        for (int64_t c = 0; c < width; ++c) spare[c] = q[c] + norm * move[c];
        for (int64_t c = 0; c < n_classes; ++c) {
            double* const to = gram[c];
            added += norm * move[c] * move[c];
            trace += to[c];
            const double factor = q[c], other = move[c];
#pragma omp simd
            for (int64_t l = 0; l < width; ++l) to[l] += factor * move[l] + other * spare[l];
        }
        doubt += kRounding * (trace + added);
        trace = 0.0;
        for (int64_t c = 0; c < n_classes; ++c) trace += gram[c][c];
        if (by.fit_intercept) gram.add(move, 1.0, b);
        gram.add(b, 1.0, b_sum);
        if (summed) {
#pragma omp simd
            for (size_t l = 0; l < sums.values.size(); ++l) sums.values[l] += mix.values[l];
        }
        // Classes close to each other need more exact distances, up to a limit.
        if (doubt > kDoubt * trace || (doubt > 10 * kDoubt * least && 8 * ++stale > d)) settle();
    }
    unmix();
    for (int64_t c = 0; c < n_classes; ++c) b[c] += 0.0 * lengths;  // NaN, if a row was not finite
    if (summed) gram.add(b_sum, 1.0, at.intercept_total);
}

void sgd_joint_pass(int loss, const Matrix& m, const Draws& draws, const Descent& by, const Labels& labels,
                    const Iterate& at) {
    PairTerms* terms = nullptr;
    with_loss(loss, [&](auto family) { terms = pair_terms<decltype(family)>; });
    with_rows(m, [&](const auto& x) { sgd_joint_pass_of(terms, x, draws, by, labels, at); });
}

}  // namespace

void GAUSSGURU_TARGET::add_sgd_joint(Kernels& table) {
    table.sgd_joint_pass = sgd_joint_pass;
}

}  // namespace gaussguru
