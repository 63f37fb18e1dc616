// Stochastic gradient descent, the algorithms of the thesis: GURU, M-GURU and M-GURU-S2.
//
// A step on row x changes w to gamma w + mu x. So that it costs only the non-zeros of x, w is kept as c v with a
// scalar c (a matrix M for many classes), ||w||^2 (the Gram matrix of the classes) follows from the scores, and the sum
// of the iterates is C v + total: C adds up the scales, and a change of v that comes when the sum is C takes C times
// itself off the total. All of this is settled at the end of a call: what the caller owns is w and the sum of the w's.
#pragma once
#include <type_traits>
#include <utility>
#include <vector>

#include "pointwise.hpp"
#include "rows.hpp"

namespace gaussguru {
namespace {

// Norms that are updated are measured again when a bound on their error reaches this part of them.
constexpr double kDoubt = 1e-11;
constexpr double kRounding = 4 * 2.3e-16;
// A change whose square is at most this part of ||w||^2 is lost in rounding, and not worth a look at v.
constexpr double kNothing = 1e-34;
// The least scale of w. The sum of the iterates loses as many digits as the scale has, and what the classes have in
// common, which no step scales, as many as their differences have.
constexpr double kLeastScale = 1e-9, kLeastScaleSummed = 1e-4, kLeastScaleMixed = 1e-3;

// --- rows are drawn at random: fetch what comes ------------------------------------------------------------

// Of a sparse row the first lines only, lest a long one push out what is in use: after them the processor fetches by
// itself. From its own cache it would after four of them, but data is read there only once it was read from memory.
constexpr int64_t kLine = 64, kFetchAhead = 8, kFetchNext = 2, kFetchLines = 16;

#ifdef _MSC_VER
inline void fetch(const void*, const void*) {}
#else
inline void fetch(const void* begin, const void* end) {
    const char *from = static_cast<const char*>(begin), *to = static_cast<const char*>(end);
    for (; from < to; from += kLine) __builtin_prefetch(from);
    // A call of a function that only fetches has no effect that GCC knows of, and would be dropped.
    asm volatile("");
}
#endif

template <class T>
inline void fetch_first(const T* begin, int64_t n) {
    constexpr int64_t kMost = kFetchLines * kLine / static_cast<int64_t>(sizeof(T));
    fetch(begin, begin + (n < kMost ? n : kMost));
}

// Fetches rows of X some steps ahead; long rows only a few, lest they push out what is in use.
template <class T>
struct Ahead {};

template <class T>
struct Ahead<Dense<T>> {
    const Dense<T>& x;
    const Draws& draws;
    int64_t steps;
    Ahead(const Dense<T>& rows, const Draws& of)
        : x(rows), draws(of), steps(4096 / (1 + static_cast<int64_t>(sizeof(T)) * rows.n_columns)) {
        steps = steps < 1 ? 1 : steps > kFetchAhead ? kFetchAhead : steps;
    }
    void operator()(int64_t k) const {
        if (k + steps >= draws.n) return;
        const int64_t i = draws.order[k + steps];
        fetch(x.row(i), x.row(i + 1));
        fetch(draws.weight + i, draws.weight + i + 1);
    }
};

template <class T, class I>
struct Ahead<Csr<T, I>> {
    const Csr<T, I>& x;
    const Draws& draws;
    Ahead(const Csr<T, I>& rows, const Draws& of) : x(rows), draws(of) {}
    void operator()(int64_t k) const {
        if (k + kFetchAhead < draws.n) {
            const int64_t i = draws.order[k + kFetchAhead];
            fetch(x.indptr + i, x.indptr + i + 1);
            fetch(draws.weight + i, draws.weight + i + 1);
        }
        if (k + kFetchNext < draws.n) {
            const int64_t i = draws.order[k + kFetchNext];
            const I begin = x.indptr[i], n = x.indptr[i + 1] - begin;
            fetch_first(x.values + begin, n);
            fetch_first(x.indices + begin, n);
        }
    }
};

// With the coefficients of samples a step moves that of its own, and the norm is known only from the steps.
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
    void operator()(int64_t) const {}  // read in order: the processor fetches by itself
};

// --- two classes -------------------------------------------------------------------------------------------

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
            if (square < 0.0) square = 0.0;  // rounding, where a step undoes all before it
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

// --- many classes ------------------------------------------------------------------------------------------

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

// Calls body(first, n) for runs of classes of a length known to the compiler, which keeps what belongs to them in
// registers.
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
inline void scores(const Rows& x, int64_t i, const double* V, int64_t width, double* out) {
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
inline void add_outer(const Rows& x, int64_t i, const double* u, int64_t width, double* V) {
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
    void times(const double* u, double* out) {
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
    void apply(Square& matrix, double* spare) const {
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
    void apply_inverse_transposed(Square& matrix) const {
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

// W (classes x features) is M V', V having `width` numbers a feature: the classes, padded with zeros. Kept with it are
// the inverse of M, the Gram matrix W W' and the sum of the M's, in the part of the scale c of two classes, of its
// inverse, of ||w||^2 and of the sum of the scales.
template <class Loss, bool kSummed, class Rows>
void sgd_joint_pass_of(const Rows& x, const Draws& draws, const Descent& by, const Labels& labels, const Iterate& at) {
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
            double *const v = at.coef + j * width, *const total = at.coef_total + (kSummed ? j * width : 0);
            for (int64_t c = 0; c < width; ++c) spare[c] = 0.0;
            for (int64_t c = 0; c < n_classes; ++c) {
                gram.add(mix[c], v[c], spare);
                if (kSummed) gram.add(sums[c], v[c], total);
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
        if (r >= 0) eta *= many;  // one class in so many moves
        const double step = eta * draws.weight[i];

        scores(x, i, at.coef, width, raw);
        mix.times(raw, q);

        // alpha, and kap = step sigma f*/||w_y - w_c||, of every pair; their limits where w_y = w_c.
        const double* const row = gram[y];
        const double own = row[y], score = q[y] + b[y];
        double least = own;
        for (int64_t c = 0; c < n_classes; ++c) spare[c] = gram[c][c];
#pragma omp simd reduction(min : least)
        for (int64_t c = 0; c < width; ++c) {
            const bool pair = c != y && c < n_classes;
            const double square = own + spare[c] - 2.0 * row[c];
            const double slack = 1.0 - score + (q[c] + b[c]);
            const bool apart = square > 0.0;
            const double over = apart ? 1.0 / std::sqrt(square) : 0.0;
            const Terms terms = Loss::at(slack * (over / by.sigma));
            const double slope = apart ? terms.slope : slack > 0.0 ? 1.0 : 0.0;
            alpha[c] = pair ? slope : 0.0;
            kap[c] = pair ? step * by.sigma * terms.conjugate * over : 0.0;
            least = pair && square < least ? square : least;
        }

        // Too long a step must not carry any difference of classes beyond zero: the largest eigenvalue of the mixing is
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
        if (kSummed) {
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
        if (kSummed) {
#pragma omp simd
            for (size_t l = 0; l < sums.values.size(); ++l) sums.values[l] += mix.values[l];
        }
        // Classes close to each other need their distance more exactly, but not at any price.
        if (doubt > kDoubt * trace || (doubt > 10 * kDoubt * least && 8 * ++stale > d)) settle();
    }
    unmix();
    for (int64_t c = 0; c < n_classes; ++c) b[c] += 0.0 * lengths;  // NaN, if a row was not finite
    if (kSummed) gram.add(b_sum, 1.0, at.intercept_total);
}

void sgd_joint_pass(int loss, const Matrix& m, const Draws& draws, const Descent& by, const Labels& labels,
                    const Iterate& at) {
    with_loss(loss, [&](auto family) {
        using Loss = decltype(family);
        with_rows(m, [&](const auto& x) {
            at.coef_total ? sgd_joint_pass_of<Loss, true>(x, draws, by, labels, at)
                          : sgd_joint_pass_of<Loss, false>(x, draws, by, labels, at);
        });
    });
}

void squared_norms(const Matrix& m, int64_t begin, int64_t end, double* out) {
    with_rows(m, [&](const auto& x) {
        for (int64_t i = begin; i < end; ++i) out[i] = squared_norm(x, i);
    });
}

}  // namespace
}  // namespace gaussguru
