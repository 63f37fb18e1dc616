// Dense and CSR rows of either precision behind the same few operations: dot, add, squared_norm, project.
#pragma once
#include "kernels.hpp"

#ifdef _MSC_VER
#define GAUSSGURU_RESTRICT __restrict
#else
#define GAUSSGURU_RESTRICT __restrict__
#endif

namespace gaussguru {
namespace {

template <class T>
struct Dense {
    const T* values;
    int64_t n_columns;
    const T* row(int64_t i) const { return values + i * n_columns; }
    Dense from(int64_t i) const { return {row(i), n_columns}; }
};

template <class T, class I>
struct Csr {
    const T* values;
    const I* indices;
    const I* indptr;
    int64_t n_columns;
    Csr from(int64_t i) const { return {values, indices, indptr + i, n_columns}; }
};

template <class F>
void with_rows(const Matrix& m, F&& body) {
    const auto typed = [&](auto zero) {
        using T = decltype(zero);
        const T* values = static_cast<const T*>(m.values);
        if (m.index_type == DENSE) {
            body(Dense<T>{values, m.n_columns});
        } else if (m.index_type == INT32) {
            body(Csr<T, int32_t>{values, static_cast<const int32_t*>(m.indices),
                                 static_cast<const int32_t*>(m.indptr), m.n_columns});
        } else {
            body(Csr<T, int64_t>{values, static_cast<const int64_t*>(m.indices),
                                 static_cast<const int64_t*>(m.indptr), m.n_columns});
        }
    };
    if (m.value_type == FLOAT32) {
        typed(float{});
    } else {
        typed(double{});
    }
}

// Four rows share each load of w or out; the last n % 4 rows go one by one.
constexpr int64_t kRows = 4;

template <class T>
inline void dot4(int64_t n_columns, const T* x0, const T* x1, const T* x2, const T* x3, const double* w, double* out) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
    for (int64_t j = 0; j < n_columns; ++j) {
        s0 += x0[j] * w[j];
        s1 += x1[j] * w[j];
        s2 += x2[j] * w[j];
        s3 += x3[j] * w[j];
    }
    out[0] = s0;
    out[1] = s1;
    out[2] = s2;
    out[3] = s3;
}

template <class T>
inline double dot(const Dense<T>& x, int64_t i, const double* w) {
    const T* row = x.row(i);
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < x.n_columns; ++j) s += row[j] * w[j];
    return s;
}

// Four independent sums, because each addition to one sum waits for the last.
template <class T, class I>
inline double dot(const Csr<T, I>& x, int64_t i, const double* w) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    I k = x.indptr[i];
    const I end = x.indptr[i + 1];
    for (; k + 4 <= end; k += 4) {
        s0 += x.values[k] * w[x.indices[k]];
        s1 += x.values[k + 1] * w[x.indices[k + 1]];
        s2 += x.values[k + 2] * w[x.indices[k + 2]];
        s3 += x.values[k + 3] * w[x.indices[k + 3]];
    }
    for (; k < end; ++k) s0 += x.values[k] * w[x.indices[k]];
    return (s0 + s1) + (s2 + s3);
}

// out += r[0] x0 + ... + r[3] x3
template <class T>
inline void add4(int64_t n_columns, const T* x0, const T* x1, const T* x2, const T* x3, const double* r, double* out) {
    const double r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
#pragma omp simd
    for (int64_t j = 0; j < n_columns; ++j) out[j] += (r0 * x0[j] + r1 * x1[j]) + (r2 * x2[j] + r3 * x3[j]);
}

template <class T>
inline void add(const Dense<T>& x, int64_t i, double r, double* out) {
    const T* row = x.row(i);
#pragma omp simd
    for (int64_t j = 0; j < x.n_columns; ++j) out[j] += r * row[j];
}

template <class T, class I>
inline void add(const Csr<T, I>& x, int64_t i, double r, double* out) {
    const I end = x.indptr[i + 1];
    for (I k = x.indptr[i]; k < end; ++k) out[x.indices[k]] += r * x.values[k];
}

template <class T>
GAUSSGURU_APART void margins_of(const Dense<T>& x, int64_t begin, int64_t end, const double* w, double* out) {
    int64_t i = begin;
    for (; i + kRows <= end; i += kRows) {
        dot4(x.n_columns, x.row(i), x.row(i + 1), x.row(i + 2), x.row(i + 3), w, out + i);
    }
    for (; i < end; ++i) out[i] = dot(x, i, w);
}

template <class T, class I>
GAUSSGURU_APART void margins_of(const Csr<T, I>& x, int64_t begin, int64_t end, const double* w, double* out) {
    for (int64_t i = begin; i < end; ++i) out[i] = dot(x, i, w);
}

// The number of rows of a piece that stays in cache between two uses.
constexpr int64_t kPiece = 256;

template <class T>
int64_t piece_rows(const Dense<T>& x) {
    const int64_t fits = (int64_t{1} << 17) / static_cast<int64_t>(sizeof(T)) / (x.n_columns > 0 ? x.n_columns : 1);
    return fits < kRows ? kRows : fits > kPiece ? kPiece : fits;
}

template <class T, class I>
int64_t piece_rows(const Csr<T, I>&) {
    return kPiece;
}

template <class T>
void add_rows(const Dense<T>& x, const int64_t* rows, int64_t n, const double* r, double* out) {
    int64_t k = 0;
    for (; k + kRows <= n; k += kRows) {
        const int64_t* i = rows + k;
        const double weights[kRows] = {r[i[0]], r[i[1]], r[i[2]], r[i[3]]};
        add4(x.n_columns, x.row(i[0]), x.row(i[1]), x.row(i[2]), x.row(i[3]), weights, out);
    }
    for (; k < n; ++k) add(x, rows[k], r[rows[k]], out);
}

template <class T, class I>
void add_rows(const Csr<T, I>& x, const int64_t* rows, int64_t n, const double* r, double* out) {
    for (int64_t k = 0; k < n; ++k) add(x, rows[k], r[rows[k]], out);
}

// out += the sum of c u u' over four padded rows u of this width, its lower triangle; two rows of the result at once:
// 8 multiply-adds for 6 loads, and loops without remainders.
inline GAUSSGURU_APART void add_squares_of_four(const double* const* u, const double* c, int64_t width, double* out, int64_t stride) {
    const double *u0 = u[0], *u1 = u[1], *u2 = u[2], *u3 = u[3];
    for (int64_t j = 0; j < width; j += 2) {
        const double a0 = c[0] * u0[j], a1 = c[1] * u1[j], a2 = c[2] * u2[j], a3 = c[3] * u3[j];
        const double b0 = c[0] * u0[j + 1], b1 = c[1] * u1[j + 1], b2 = c[2] * u2[j + 1], b3 = c[3] * u3[j + 1];
        double* GAUSSGURU_RESTRICT ha = out + j * stride;
        double* GAUSSGURU_RESTRICT hb = ha + stride;
        const int64_t length = (j + 2 + 7) & ~int64_t{7};
#pragma omp simd
        for (int64_t k = 0; k < length; ++k) {
            ha[k] += (a0 * u0[k] + a1 * u1[k]) + (a2 * u2[k] + a3 * u3[k]);
            hb[k] += (b0 * u0[k] + b1 * u1[k]) + (b2 * u2[k] + b3 * u3[k]);
        }
    }
}

template <class T>
inline double squared_norm(const Dense<T>& x, int64_t i) {
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < x.n_columns; ++j) s += static_cast<double>(x.row(i)[j]) * x.row(i)[j];
    return s;
}

template <class T, class I>
inline double squared_norm(const Csr<T, I>& x, int64_t i) {
    const I begin = x.indptr[i], end = x.indptr[i + 1];
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (I k = begin; k < end; ++k) s += static_cast<double>(x.values[k]) * x.values[k];
    return s;
}

// sum_j scale_j x_j^2
template <class T>
inline double weighted_square(const Dense<T>& x, int64_t i, const double* scale) {
    const T* const row = x.row(i);
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = 0; j < x.n_columns; ++j) s += scale[j] * row[j] * row[j];
    return s;
}

template <class T, class I>
inline double weighted_square(const Csr<T, I>& x, int64_t i, const double* scale) {
    double s = 0;
    for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) s += scale[x.indices[k]] * x.values[k] * x.values[k];
    return s;
}

// w.x and ||x||^2 of a row, which is read once.
struct Projection {
    double dot, square;
};

template <class T>
inline Projection project(const Dense<T>& x, int64_t i, const double* w) {
    const T* row = x.row(i);
    double s = 0, square = 0;
#pragma omp simd reduction(+ : s, square)
    for (int64_t j = 0; j < x.n_columns; ++j) {
        const double value = row[j];
        s += value * w[j];
        square += value * value;
    }
    return {s, square};
}

template <class T, class I>
inline Projection project(const Csr<T, I>& x, int64_t i, const double* w) {
    double s[4] = {}, square[4] = {};
    I k = x.indptr[i];
    const I end = x.indptr[i + 1];
    for (; k + 4 <= end; k += 4) {
        for (int l = 0; l < 4; ++l) {
            const double value = x.values[k + l];
            s[l] += value * w[x.indices[k + l]];
            square[l] += value * value;
        }
    }
    for (; k < end; ++k) {
        const double value = x.values[k];
        s[0] += value * w[x.indices[k]];
        square[0] += value * value;
    }
    return {(s[0] + s[1]) + (s[2] + s[3]), (square[0] + square[1]) + (square[2] + square[3])};
}

// body(column, value) for every stored entry of row i.
template <class T, class F>
inline void each_entry(const Dense<T>& x, int64_t i, F&& body) {
    for (int64_t j = 0; j < x.n_columns; ++j) body(j, static_cast<double>(x.row(i)[j]));
}

template <class T, class I, class F>
inline void each_entry(const Csr<T, I>& x, int64_t i, F&& body) {
    for (I k = x.indptr[i]; k < x.indptr[i + 1]; ++k) body(x.indices[k], static_cast<double>(x.values[k]));
}

}  // namespace
}  // namespace gaussguru
