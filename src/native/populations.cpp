// Samples with noise under a Gaussian population: Cholesky factors of T + S_i and their inverses.
#include <cmath>
#include <vector>

#include "kernels.hpp"

namespace gaussguru {
namespace {

// The number of interleaved samples: every operation on an entry of a matrix is one on this many samples, so that the
// vector length does not depend on the number of features.
constexpr int64_t kLanes = kSamples;

// One number of each of kLanes samples. A struct, because compilers keep sums in arrays in memory, twice as slow.
#ifdef __GNUC__
typedef double Quad __attribute__((vector_size(32), aligned(8)));
struct Lanes {
    Quad a, b;
};
inline Lanes load(const double* from) {
    return {*reinterpret_cast<const Quad*>(from), *reinterpret_cast<const Quad*>(from + 4)};
}
inline void store(double* to, const Lanes& x) {
    *reinterpret_cast<Quad*>(to) = x.a;
    *reinterpret_cast<Quad*>(to + 4) = x.b;
}
inline Lanes operator*(const Lanes& x, const Lanes& y) { return {x.a * y.a, x.b * y.b}; }
inline Lanes operator+(const Lanes& x, const Lanes& y) { return {x.a + y.a, x.b + y.b}; }
inline Lanes operator-(const Lanes& x, const Lanes& y) { return {x.a - y.a, x.b - y.b}; }
static_assert(kLanes == 8, "two vectors of four");
#else
struct Lanes {
    double x[kLanes];
};
inline Lanes load(const double* from) {
    Lanes out;
    for (int64_t l = 0; l < kLanes; ++l) out.x[l] = from[l];
    return out;
}
inline void store(double* to, const Lanes& x) {
    for (int64_t l = 0; l < kLanes; ++l) to[l] = x.x[l];
}
inline Lanes operator*(Lanes x, const Lanes& y) {
    for (int64_t l = 0; l < kLanes; ++l) x.x[l] *= y.x[l];
    return x;
}
inline Lanes operator+(Lanes x, const Lanes& y) {
    for (int64_t l = 0; l < kLanes; ++l) x.x[l] += y.x[l];
    return x;
}
inline Lanes operator-(Lanes x, const Lanes& y) {
    for (int64_t l = 0; l < kLanes; ++l) x.x[l] -= y.x[l];
    return x;
}
#endif

inline int64_t corner(int64_t i) { return i * (i + 1) / 2; }  // where row i of a lower triangle begins

// An entry of a lower triangle.
inline double* entry(double* L, int64_t i, int64_t j) { return L + (corner(i) + j) * kLanes; }
inline const double* entry(const double* L, int64_t i, int64_t j) { return L + (corner(i) + j) * kLanes; }

// Independent sums, so that an addition does not wait for the last.
constexpr int64_t kTile = 4;

// sums_t += the sum over begin <= i < d of u_i J_(i, k + t), for a column u.
template <int64_t tile>
inline void column_dots(int64_t begin, int64_t d, const double* u, const double* J, int64_t k, Lanes* sums) {
    for (int64_t i = begin; i < d; ++i) {
        const Lanes x = load(u + i * kLanes);
        const double* row = entry(J, i, k);
        for (int64_t t = 0; t < tile; ++t) sums[t] = sums[t] + x * load(row + t * kLanes);
    }
}

// Calls `use` with t and the sum over max(begin, t) <= i < d of u_i J_it, for 0 <= t < n.
template <class Use>
inline void all_column_dots(int64_t n, int64_t begin, int64_t d, const double* u, const double* J, Use use) {
    int64_t t = 0;
    for (; t + kTile <= n; t += kTile) {
        Lanes sums[kTile] = {};
        // In the corner, columns begin at different rows, because J is lower triangular.
        const int64_t whole = begin > t + kTile ? begin : t + kTile;
        for (int64_t i = begin > t ? begin : t; i < whole && i < d; ++i) {
            const Lanes x = load(u + i * kLanes);
            for (int64_t s = 0; s < kTile && t + s <= i; ++s) sums[s] = sums[s] + x * load(entry(J, i, t + s));
        }
        column_dots<kTile>(whole, d, u, J, t, sums);
        for (int64_t s = 0; s < kTile; ++s) use(t + s, sums[s]);
    }
    for (; t < n; ++t) {
        Lanes sum[1] = {};
        column_dots<1>(begin > t ? begin : t, d, u, J, t, sum);
        use(t, sum[0]);
    }
}

// The lower triangle C of kLanes matrices becomes L with L L' = C, with 1/L_ii on the diagonal; logs -= log det L.
// Returns false if a matrix is not positive definite.
inline bool factor_lanes(int64_t d, double* C, double* logs) {
    for (int64_t i = 0; i < d; ++i) {
        double* row = entry(C, i, 0);
        for (int64_t first = 0; first <= i; first += kTile) {
            const int64_t n = i + 1 - first < kTile ? i + 1 - first : kTile;
            Lanes sums[kTile];
            const double* others[kTile];
            for (int64_t t = 0; t < kTile; ++t) {
                const int64_t j = first + (t < n ? t : 0);
                sums[t] = load(row + j * kLanes);
                others[t] = entry(C, j, 0);
            }
            for (int64_t k = 0; k < first; ++k) {
                const Lanes x = load(row + k * kLanes);
                for (int64_t t = 0; t < kTile; ++t) sums[t] = sums[t] - x * load(others[t] + k * kLanes);
            }
            for (int64_t t = 0; t < n; ++t) {
                const int64_t j = first + t;
                for (int64_t k = first; k < j; ++k) {
                    sums[t] = sums[t] - load(row + k * kLanes) * load(others[t] + k * kLanes);
                }
                store(row + j * kLanes, j < i ? sums[t] * load(others[t] + j * kLanes) : sums[t]);
            }
        }
        double* pivot = row + i * kLanes;
        for (int64_t l = 0; l < kLanes; ++l) {
            if (!(pivot[l] > 0.0)) return false;
            pivot[l] = 1.0 / std::sqrt(pivot[l]);
            logs[l] += std::log(pivot[l]);
        }
    }
    return true;
}

// L, with 1/L_ii on the diagonal, becomes its inverse J.
inline void invert_lanes(int64_t d, double* L, double* spare) {
    for (int64_t i = 1; i < d; ++i) {
        double* row = entry(L, i, 0);
        const Lanes scale = load(row + i * kLanes);
        for (int64_t k = 0; k < i; ++k) store(spare + k * kLanes, Lanes{} - load(row + k * kLanes) * scale);
        all_column_dots(i, 0, i, spare, L, [&](int64_t j, const Lanes& sum) { store(row + j * kLanes, sum); });
    }
}

// The lower triangles of T + S of kLanes samples from row `first` on; the last sample is repeated if there are fewer.
inline void load_lanes(const Cloud& cloud, int64_t first, double* C) {
    const int64_t d = cloud.n_features;
    for (int64_t j = 0; j < d; ++j) {
        for (int64_t k = 0; k <= j; ++k) {
            double* to = entry(C, j, k);
            for (int64_t l = 0; l < kLanes; ++l) to[l] = cloud.T[j * d + k];
        }
    }
    for (int64_t l = 0; l < kLanes; ++l) {
        const int64_t i = first + l < cloud.n ? first + l : cloud.n - 1;
        const double* noise = cloud.noise + i * (cloud.correlated ? d * d : d);
        for (int64_t j = 0; j < d; ++j) {
            if (!cloud.correlated) entry(C, j, j)[l] += noise[j];
            for (int64_t k = 0; cloud.correlated && k <= j; ++k) entry(C, j, k)[l] += noise[j * d + k];
        }
        if (cloud.known == nullptr) continue;
        const unsigned char* known = cloud.known + i * d;
        for (int64_t j = 0; j < d; ++j) {
            if (known[j]) continue;
            for (int64_t k = 0; k < d; ++k) (k < j ? entry(C, j, k) : entry(C, k, j))[l] = k == j ? 1.0 : 0.0;
        }
    }
}

bool whiten(const Cloud& cloud, double* logs, double* solved, double* J) {
    const int64_t d = cloud.n_features, size = corner(d) * kLanes;
    std::vector<double> spare(2 * d * kLanes);
    double *r = spare.data(), *white = r + d * kLanes;
    for (int64_t first = 0; first < cloud.n; first += kLanes, J += size) {
        const int64_t n = cloud.n - first < kLanes ? cloud.n - first : kLanes;
        double log_det[kLanes] = {0.0}, a[kLanes];
        load_lanes(cloud, first, J);
        if (!factor_lanes(d, J, log_det)) return false;
        invert_lanes(d, J, r);
        for (int64_t j = 0; j < d; ++j) {
            for (int64_t l = 0; l < kLanes; ++l) {
                const int64_t place = (first + (l < n ? l : n - 1)) * d + j;
                const bool seen = cloud.known == nullptr || cloud.known[place];
                r[j * kLanes + l] = seen ? cloud.residuals[place] : 0.0;
                if (!seen) entry(J, j, j)[l] = 0.0;
            }
        }
        Lanes squares{};
        for (int64_t i = 0; i < d; ++i) {
            const double* row = entry(J, i, 0);
            Lanes sum = load(row) * load(r);
            for (int64_t k = 1; k <= i; ++k) sum = sum + load(row + k * kLanes) * load(r + k * kLanes);
            store(white + i * kLanes, sum);
            squares = squares + sum * sum;
        }
        all_column_dots(d, 0, d, white, J, [&](int64_t j, const Lanes& sum) {
            store(a, sum);
            for (int64_t l = 0; l < n; ++l) solved[(first + l) * d + j] = a[l];
        });
        store(a, squares);
        for (int64_t l = 0; l < n; ++l) logs[first + l] = log_det[l] - 0.5 * a[l];
    }
    return true;
}

void add_precisions(int64_t n, int64_t d, const double* J, const double* q, double* out) {
    const int64_t size = corner(d) * kLanes;
    std::vector<double> total(size, 0.0), spare(d * kLanes);
    for (int64_t first = 0; first < n; first += kLanes, J += size) {
        double shares[kLanes];
        for (int64_t l = 0; l < kLanes; ++l) shares[l] = first + l < n ? q[first + l] : 0.0;
        const Lanes weight = load(shares);
        for (int64_t j = 0; j < d; ++j) {
            for (int64_t i = j; i < d; ++i) store(&spare[i * kLanes], weight * load(entry(J, i, j)));
            all_column_dots(j + 1, j, d, spare.data(), J, [&](int64_t k, const Lanes& sum) {
                double* to = entry(total.data(), j, k);
                store(to, load(to) + sum);
            });
        }
    }
    for (int64_t j = 0; j < d; ++j) {
        for (int64_t k = 0; k <= j; ++k) {
            double sum = 0.0;
            for (int64_t l = 0; l < kLanes; ++l) sum += entry(total.data(), j, k)[l];
            out[j * d + k] = out[k * d + j] = sum;
        }
    }
}

void precisions(int64_t n, int64_t d, const double* J, double* out) {
    const int64_t size = corner(d) * kLanes;
    std::vector<double> spare(d * kLanes);
    for (int64_t first = 0; first < n; first += kLanes, J += size) {
        const int64_t some = n - first < kLanes ? n - first : kLanes;
        double sums[kLanes];
        for (int64_t j = 0; j < d; ++j) {
            for (int64_t i = j; i < d; ++i) store(&spare[i * kLanes], load(entry(J, i, j)));
            all_column_dots(j + 1, j, d, spare.data(), J, [&](int64_t k, const Lanes& sum) {
                store(sums, sum);
                for (int64_t l = 0; l < some; ++l) {
                    double* P = out + (first + l) * d * d;
                    P[j * d + k] = P[k * d + j] = sums[l];
                }
            });
        }
    }
}

}  // namespace

void GAUSSGURU_TARGET::add_populations(Kernels& table) {
    table.whiten = whiten;
    table.add_precisions = add_precisions;
    table.precisions = precisions;
}

}  // namespace gaussguru
