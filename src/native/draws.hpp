// Code shared by the descents of two and of many classes: the rule for recomputing norms, and prefetching of the rows
// that are drawn at random.
#pragma once
#include "rows.hpp"

namespace gaussguru {
namespace {

// An updated norm is recomputed when a bound on its relative error reaches this value.
constexpr double kDoubt = 1e-11;
constexpr double kRounding = 4 * 2.3e-16;

// Only the first lines of a sparse row are prefetched, so that a long row does not evict data in use; the hardware
// prefetcher continues. (For data in cache it would start after four lines, but rows are in memory at first.)
constexpr int64_t kLine = 64, kFetchAhead = 8, kFetchNext = 2, kFetchLines = 16;

#ifdef _MSC_VER
inline void fetch(const void*, const void*) {}
#else
inline void fetch(const void* begin, const void* end) {
    const char *from = static_cast<const char*>(begin), *to = static_cast<const char*>(end);
    for (; from < to; from += kLine) __builtin_prefetch(from);
    // Without this GCC drops a call of a function that only prefetches, because it sees no effect.
    asm volatile("");
}
#endif

template <class T>
inline void fetch_first(const T* begin, int64_t n) {
    constexpr int64_t kMost = kFetchLines * kLine / static_cast<int64_t>(sizeof(T));
    fetch(begin, begin + (n < kMost ? n : kMost));
}

// Prefetches rows of X several steps ahead; long rows fewer steps, so that they do not evict data in use.
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

}  // namespace
}  // namespace gaussguru
