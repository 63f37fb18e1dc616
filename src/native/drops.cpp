// The smooth sum of the K largest terms z_j = u_j x_j of every row, u = w_c - w_k for its class c and another one k:
// the maximum of p.z + mu H(p) over 0 <= p <= 1, sum p <= K, with the entropy H of independent choices.
#include <algorithm>
#include <vector>

#include "losses.hpp"
#include "rows.hpp"

namespace gaussguru {
namespace {

// Shares are 0 or 1, to rounding, so many times mu from theta; a product p (1 - p) below the last number counts as 0.
constexpr double kFar = 40.0, kNone = 1e-18, kEps = 2.220446049250313e-16;
// Steps of Newton's method and bisection for theta, the error of the sum of p that is left to a factor, as a fraction,
// and the one from which one more step leads below rounding.
constexpr int kSteps = 60;
constexpr double kExact = 1e-13, kLast = 1e-9;

// 1 / (1 + exp(-t)) and log(1 + exp(t)).
struct Choice {
    double share, soft;
};

GAUSSGURU_INLINE Choice choice(double t) {
    const double size = std::fabs(t), far = size > 700.0 ? 700.0 : size;
    const Rounded k(-far * 1.4426950408889634074);
    const double r = (-far - k.value * 6.93147180369123816490e-01) - k.value * 1.90821492927058770002e-10;
    const double e = exp_near(r) * k.first_power() * k.second_power(), inverse = 1.0 / (1.0 + e);
    const bool right = t > 0.0;
    return {right ? inverse : e * inverse, (right ? t : 0.0) + log_one_plus(e)};
}

// The entries of a row: their number and columns.
template <class T>
inline int64_t count(const Dense<T>& x, int64_t) {
    return x.n_columns;
}
template <class T>
inline int64_t column(const Dense<T>&, int64_t, int64_t e) {
    return e;
}
template <class T, class I>
inline int64_t count(const Csr<T, I>& x, int64_t i) {
    return x.indptr[i + 1] - x.indptr[i];
}
template <class T, class I>
inline int64_t column(const Csr<T, I>& x, int64_t i, int64_t e) {
    return x.indices[x.indptr[i] + e];
}
template <class T>
inline const T* entries(const Dense<T>& x, int64_t i) {
    return x.row(i);
}
template <class T, class I>
inline const T* entries(const Csr<T, I>& x, int64_t i) {
    return x.values + x.indptr[i];
}

// One row at a time, against one class.
template <class Rows>
struct DropRow {
    const Rows& x;
    const Drops& at;
    int64_t i = 0, c = 0, m = 0;
    bool tight = false;
    std::vector<double> value, z, p, some;

    DropRow(const Rows& rows, const Drops& drops) : x(rows), at(drops) {}

    void open(int64_t row) {
        i = row;
        c = at.labels[row];
        m = count(x, row);
        if (m > static_cast<int64_t>(value.size())) {
            value.resize(m);
            z.resize(m);
            p.resize(m);
            some.resize(m + 1);
        }
        std::copy(entries(x, row), entries(x, row) + m, value.begin());
    }

    // The entries of the row times those of V_c - V_k.
    void times(const double* V, int64_t k, double* out) const {
        const double *one = V + c * x.n_columns, *other = V + k * x.n_columns, *const a = value.data();
        for (int64_t e = 0; e < m; ++e) {
            const int64_t j = column(x, i, e);
            out[e] = a[e] * (one[j] - other[j]);
        }
    }

    // z / mu; a value of 0 cannot be deleted.
    void terms(int64_t k) {
        times(at.W, k, z.data());
        const double inverse = at.blur > 0.0 ? 1.0 / at.blur : 1.0;
        for (int64_t e = 0; e < m; ++e) z[e] = value[e] != 0.0 ? z[e] * inverse : -HUGE_VAL;
    }

    // The K largest terms first in some, the least of them in place K - 1.
    void order(int64_t n_drop) {
        std::copy(z.begin(), z.begin() + m, some.begin());
        std::nth_element(some.begin(), some.begin() + (n_drop - 1), some.begin() + m, std::greater<double>());
    }

    // The terms between two bounds come first in some: their number, and the number of those above.
    int64_t between(double low, double high, int64_t& above) {
        int64_t n = 0;
        above = 0;
        for (int64_t e = 0; e < m; ++e) {
            above += z[e] > high;
            some[n] = z[e];
            n += z[e] > low && z[e] <= high;
        }
        return n;
    }

    // The least theta >= 0 at which the shares add up to at most K, from a guess if it is positive.
    double threshold(double guess) {
        if (m <= at.n_drop) return 0.0;
        order(at.n_drop);
        const double last = some[at.n_drop - 1], most = static_cast<double>(at.n_drop);
        const double next = *std::max_element(some.begin() + at.n_drop, some.begin() + m);
        if (next < -kFar) return 0.0;
        double low = std::max(next - at.log_above, 0.0), high = std::max(last, 0.0) + at.log_columns;
        // Terms far away have shares of 0 or 1.
        int64_t fixed;
        const int64_t n = between(low - kFar, high + kFar, fixed);
        double theta = guess > low && guess < high ? guess : low > 0.0 ? 0.5 * (low + high) : 0.0;
        for (int step = 0; step < kSteps; ++step) {
            double sum = static_cast<double>(fixed), slope = 0;
            const double* const near = some.data();
#pragma omp simd reduction(+ : sum, slope)
            for (int64_t e = 0; e < n; ++e) {
                const double share = choice(near[e] - theta).share;
                sum += share;
                slope += share * (1.0 - share);
            }
            const double excess = sum - most;
            if (theta == 0.0 && excess <= 0.0) break;
            // A rounding of theta changes the sum by the slope times it.
            if (!(std::fabs(excess) > kExact * most + 4 * kEps * theta * slope)) break;
            (excess > 0.0 ? low : high) = theta;
            // The logarithm of the sum is nearly linear where all shares are small.
            const double to = theta + sum * std::log(sum / most) / slope;
            const bool inside = to > low && to < high;
            theta = inside ? to : 0.5 * (low + high);
            if (inside && std::fabs(excess) < kLast * most) break;
        }
        return theta;
    }

    // The sum of the largest terms, with the number that gives the shares later.
    double support(int64_t k, double& state) {
        terms(k);
        const double guess = at.blur > 0.0 ? state / at.blur : 0.0;
        state = 0.0;
        double total = 0;
        if (!(at.blur > 0.0)) {
            const int64_t n = std::min(at.n_drop, m);
            if (n) order(n);
            for (int64_t e = 0; e < n; ++e) total += std::max(some[e], 0.0);
            return total;
        }
        // K theta + sum log(1 + exp(z - theta)): the dual of the maximum over p, also where theta is not exact.
        const double theta = threshold(guess);
        for (int64_t e = 0; e < m; ++e) total += z[e] > theta + kFar ? z[e] - theta : 0.0;
        int64_t above;
        const int64_t n = between(theta - kFar, theta + kFar, above);
        const double* const near = some.data();
#pragma omp simd reduction(+ : total)
        for (int64_t e = 0; e < n; ++e) total += choice(near[e] - theta).soft;
        state = at.blur * theta;
        return at.blur * (static_cast<double>(at.n_drop) * theta + total);
    }

    // The shares p that are deleted, of a sum of at most K, which is tight where theta is positive.
    void shares(int64_t k, double state) {
        terms(k);
        const double theta = state / at.blur, *const t = z.data();
        double total = 0, *const share = p.data();
#pragma omp simd reduction(+ : total)
        for (int64_t e = 0; e < m; ++e) {
            share[e] = choice(t[e] - theta).share;
            total += share[e];
        }
        tight = state > 0.0;
        if (total <= static_cast<double>(at.n_drop)) return;
        const double factor = static_cast<double>(at.n_drop) / total;
        for (int64_t e = 0; e < m; ++e) share[e] *= factor;
    }

    // q = p (1 - p) / mu in z; returns 1 over its sum where p has the sum K, else 0.
    double curves() {
        const double inverse = 1.0 / at.blur;
        double total = 0;
        for (int64_t e = 0; e < m; ++e) {
            const double q = p[e] * (1.0 - p[e]);
            z[e] = q > kNone ? q * inverse : 0.0;
            total += z[e];
        }
        return tight && total > 0.0 ? 1.0 / total : 0.0;
    }

    // out_c += r times numbers of the entries, out_k -= them.
    void spread(int64_t k, double r, const double* numbers, double* out) const {
        double *one = out + c * x.n_columns, *other = out + k * x.n_columns;
        for (int64_t e = 0; e < m; ++e) {
            const int64_t j = column(x, i, e);
            one[j] += r * numbers[e];
            other[j] -= r * numbers[e];
        }
    }
};

// Calls body(row, k) for the rows and the other classes; with weights, where one is more than a rounding.
template <class F>
void each_drop(const Matrix& matrix, int64_t n, const Drops& at, const double* weights, F&& body) {
    with_rows(matrix, [&](const auto& x) {
        using Rows = std::decay_t<decltype(x)>;
        DropRow<Rows> row(x, at);
        for (int64_t i = 0; i < n; ++i) {
            bool open = false;
            for (int64_t k = 0; k < at.n_classes; ++k) {
                if (k == at.labels[i] || (weights && !(std::fabs(weights[i * at.n_classes + k]) > at.least[i]))) continue;
                if (!open) row.open(i);
                open = true;
                body(row, k);
            }
        }
    });
}

void drop_support(const Matrix& matrix, int64_t n, const Drops& at, double* reached, double* states) {
    each_drop(matrix, n, at, nullptr, [&](auto& row, int64_t k) {
        const int64_t to = row.i * at.n_classes + k;
        reached[to] = row.support(k, states[to]);
    });
}

void drop_along(const Matrix& matrix, int64_t n, const Drops& at, const double* states, const double* P, double* out) {
    each_drop(matrix, n, at, nullptr, [&](auto& row, int64_t k) {
        const int64_t to = row.i * at.n_classes + k;
        row.shares(k, states[to]);
        row.times(P, k, row.some.data());
        double total = 0;
        for (int64_t e = 0; e < row.m; ++e) total += row.p[e] * row.some[e];
        out[to] = total;
    });
}

void drop_pull(const Matrix& matrix, int64_t n, const Drops& at, const double* states, const double* residual,
               const double* P, double* out) {
    each_drop(matrix, n, at, residual, [&](auto& row, int64_t k) {
        const int64_t from = row.i * at.n_classes + k;
        row.shares(k, states[from]);
        if (P) {  // the Hessian times the step: x (q y - q (q.y) / sum q) for the change y of the terms
            const double inverse = row.curves();
            double *const y = row.some.data(), mean = 0;
            row.times(P, k, y);
            for (int64_t e = 0; e < row.m; ++e) mean += row.z[e] * y[e];
            mean *= inverse;
            for (int64_t e = 0; e < row.m; ++e) y[e] = row.z[e] * (y[e] - mean) * row.value[e];
        } else {
            for (int64_t e = 0; e < row.m; ++e) row.some[e] = row.p[e] * row.value[e];
        }
        row.spread(k, residual[from], row.some.data(), out);
    });
}

void drop_bends(const Matrix& matrix, int64_t n, const Drops& at, const double* states, const double* residual,
                double* out) {
    const int64_t d = matrix.n_columns;
    std::vector<int64_t> columns(d);
    each_drop(matrix, n, at, residual, [&](auto& row, int64_t k) {
        const int64_t from = row.i * at.n_classes + k;
        row.shares(k, states[from]);
        const double inverse = row.curves(), r = residual[from];
        double* const square = out + (std::min(row.c, k) * at.n_classes + std::max(row.c, k)) * d * d;
        int64_t used = 0;
        for (int64_t e = 0; e < row.m; ++e) {
            if (!(row.z[e] > 0.0)) continue;
            const int64_t j = column(row.x, row.i, e);
            const double root = row.z[e] * row.value[e];
            square[j * d + j] += r * root * row.value[e];
            columns[used] = j;
            row.some[used++] = root;
        }
        if (!(inverse > 0.0)) return;
        const double* const root = row.some.data();
        for (int64_t a = 0; a < used; ++a) {
            const double factor = r * inverse * root[a];
            double* const to = square + columns[a] * d;
            if (used == d) {
#pragma omp simd
                for (int64_t b = 0; b <= a; ++b) to[b] -= factor * root[b];
            } else {
                for (int64_t b = 0; b <= a; ++b) to[columns[b]] -= factor * root[b];
            }
        }
    });
}

// Two classes: sum h u u', u = (x - p x, 1).
void drop_gram(const Matrix& matrix, int64_t n, const Drops& at, const double* states, const double* curve, double* out,
               int64_t stride) {
    const int64_t d = matrix.n_columns;
    std::vector<double> kept(d + 1);
    std::vector<int64_t> columns(d + 1);
    each_drop(matrix, n, at, curve, [&](auto& row, int64_t k) {
        const int64_t from = row.i * at.n_classes + k;
        row.shares(k, states[from]);
        int64_t used = 0;
        for (int64_t e = 0; e < row.m; ++e) {
            columns[used] = column(row.x, row.i, e);
            kept[used++] = (1.0 - row.p[e]) * row.value[e];
        }
        columns[used] = d;
        kept[used++] = 1.0;
        for (int64_t a = 0; a < used; ++a) {
            const double factor = curve[from] * kept[a];
            double* const to = out + columns[a] * stride;
            if (used == d + 1) {
                const double* const u = kept.data();
#pragma omp simd
                for (int64_t b = 0; b <= a; ++b) to[b] += factor * u[b];
            } else {
                for (int64_t b = 0; b <= a; ++b) to[columns[b]] += factor * kept[b];
            }
        }
    });
}

// p x of every row against every other class, a dense row for each: (n, n_classes, n_columns).
void drop_moves(const Matrix& matrix, int64_t n, const Drops& at, const double* states, double* out) {
    each_drop(matrix, n, at, nullptr, [&](auto& row, int64_t k) {
        const int64_t from = row.i * at.n_classes + k;
        row.shares(k, states[from]);
        double* const to = out + from * matrix.n_columns;
        for (int64_t e = 0; e < row.m; ++e) to[column(row.x, row.i, e)] = row.p[e] * row.value[e];
    });
}

}  // namespace

void GAUSSGURU_TARGET::add_drops(Kernels& table) {
    table.drop_support = drop_support;
    table.drop_along = drop_along;
    table.drop_pull = drop_pull;
    table.drop_bends = drop_bends;
    table.drop_gram = drop_gram;
    table.drop_moves = drop_moves;
}

}  // namespace gaussguru
