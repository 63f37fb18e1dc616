// f, f' and f'' of each loss as branch-free functions of one number, so that loops over them vectorise.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels.hpp"

// A loop is vectorised only if all that it calls is inlined, however often.
#if defined(__GNUC__)
#define GAUSSGURU_INLINE inline __attribute__((always_inline))
#else
#define GAUSSGURU_INLINE inline
#endif

namespace gaussguru {
namespace {

struct Terms {
    double f, slope, curvature, conjugate;  // conjugate = f - z f'
};

inline double as_double(uint64_t bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint64_t as_bits(double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

template <int N>
GAUSSGURU_INLINE double polynomial(const double (&c)[N], double x) {
    double r = c[N - 1];
    for (int i = N - 2; i >= 0; --i) r = r * x + c[i];
    return r;
}

// exp(r) for |r| up to slightly more than ln(2)/2.
GAUSSGURU_INLINE double exp_near(double r) {
    static constexpr double kExp[12] = {
        0.9999999999999999969291417, 0.9999999999999999997638425, 0.5000000000000018403927312,
        0.1666666666666668081981437, 0.04166666666648795251974929, 0.00833333333331958961630389,
        0.001388888895235286286634679, 0.0001984126989007640282934262, 0.00002480148544156131296626048,
        0.000002755724088722986859643557, 0.0000002763265472252779188974916, 2.511004920481865979347943e-8};
    return polynomial(kExp, r);
}

// A number rounded to an integer k, and 2^k as a product of two powers: k may be below the exponent of a normal number.
struct Rounded {
    // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the sum.
    static constexpr double kMagic = 6755399441055744.0;
    static constexpr uint64_t kBias = 1023;
    double shifted, value, half;
    explicit Rounded(double x) : shifted(x + kMagic), value(shifted - kMagic), half(0.5 * value + kMagic) {}
    double first_power() const { return as_double((as_bits(half) + kBias) << 52); }
    double second_power() const { return as_double((as_bits(shifted) - as_bits(half) + kBias) << 52); }
};

// atanh(s)/s for 0 <= s <= 1/3, given s^2; relative error below 5e-17.
GAUSSGURU_INLINE double atanh_ratio(double s2) {
    static constexpr double kAtanh[10] = {
        0.9999999999999999557895374, 0.3333333333334128716378739, 0.1999999999764380000386383,
        0.1428571455582858011050336, 0.111110954306731420186149, 0.09091429900236955478630361,
        0.07681838124445817129219651, 0.06795652742789946917923186, 0.04940394524382393120399685,
        0.08890381913056651446927985};
    return polynomial(kAtanh, s2);
}

// log(1 + e) for 0 <= e <= 1, and -log(1 - m) for 0 <= m <= 1/2.
GAUSSGURU_INLINE double log_one_plus(double e) {
    const double s = e / (2.0 + e);
    return 2.0 * s * atanh_ratio(s * s);
}

GAUSSGURU_INLINE double minus_log_one_minus(double m) {
    const double s = m / (2.0 - m);
    return 2.0 * s * atanh_ratio(s * s);
}

// log(x) of a positive normal number to about 1e-9: enough for a starting guess or a bound.
GAUSSGURU_INLINE double log_near(double x) {
    const uint64_t bits = as_bits(x);
    // Move the cut of the mantissa from [1, 2) to [sqrt(1/2), sqrt(2)).
    const uint64_t shifted = bits - 0x3FE6A09E667F3BCDull;
    const double mantissa = as_double((shifted & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
    const int64_t exponent = static_cast<int64_t>(shifted) >> 52;
    const double s = (mantissa - 1.0) / (mantissa + 1.0), s2 = s * s;
    const double series = 2.0 * s * (1.0 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9)))));
    return static_cast<double>(static_cast<int32_t>(exponent)) * 0.69314718055994530942 + series;
}

// The normal loss f(z) = z Phi(z) + phi(z), f' = Phi, f'' = phi, f - z f' = phi.
//
// With t = |z|: Phi(-t)/phi(t) = P1(t)/Q(t) and f(-t)/phi(t) = P2(t)/Q(t), rational minimax fits whose
// coefficients are all positive and satisfy P1 = (Q - P2)/t, so nothing cancels (relative error below 1e-15
// wherever the result is a normal number). The right half follows by symmetry: Phi(t) = 1 - Phi(-t),
// f(t) = t + f(-t).
struct Gaussian {
    static GAUSSGURU_INLINE double density(double t) {
        // exp(-t^2/2)/sqrt(2 pi) for 0 <= t <= 40. The square is split into an exact high part and a rest,
        // else its rounding error, multiplied by t^2/2, would cost three digits in the tail.
        const double high = as_double(as_bits(t) & 0xFFFFFFFFF8000000ull);
        const double big = -0.5 * high * high, rest = -0.5 * (t - high) * (t + high);
        const Rounded k(big * 1.4426950408889634074);
        const double r = ((big - k.value * 6.93147180369123816490e-01) - k.value * 1.90821492927058770002e-10) + rest;
        return exp_near(r) * 0.398942280401432677939946 * k.first_power() * k.second_power();
    }

    static GAUSSGURU_INLINE Terms at(double z) {
        static constexpr double kQ[13] = {
            1.0, 2.631165056677977260774341, 3.262497084540132045585025, 2.525513672947335394887957,
            1.362284705376849893630019, 0.5407897499401596165718147, 0.1624850238390701377941771,
            0.0373648383458346291297519, 0.006555826998776398198105221, 0.0008607468849442893259296645,
            0.00008087994148261916278035865, 0.000004935837305193159274725293, 0.000000150494331179774633772358};
        static constexpr double kP1[12] = {
            1.253314137315500248584606, 2.297676363145048956496031, 2.084425730984503735564148,
            1.218269753987809156520551, 0.5059331151224690188728054, 0.1561695792371287114005828,
            0.03651889897307674248481108, 0.006475398540283334633375053, 0.0008558110476391319298753595,
            0.00008072944715143924115219327, 0.000004935837305193159274725293, 0.000000150494331179774633772358};
        static constexpr double kP2[11] = {
            1.0, 1.377850919362477012189735, 0.9648207213950830890889936, 0.441087941962831659323809,
            0.1440149513890407371094682, 0.03485663481769059769900937, 0.006315444601941426393594276,
            0.0008459393727578866449408261, 0.00008042845849306356473016803, 0.000004935837305157396054305013,
            0.0000001504943311799216281653795};
        const double distance = std::fabs(z);
        const double t = distance > 40.0 ? 40.0 : distance;  // phi(40) is 0 in double precision; NaN passes
        const double phi = density(t);
        const double inverse = 1.0 / polynomial(kQ, t);  // not phi/Q: that is denormal from t = 35 on
        const double tail = phi * (inverse * polynomial(kP1, t));
        const double excess = phi * (inverse * polynomial(kP2, t));
        const bool right = z > 0.0;
        return {right ? z + excess : excess, right ? 1.0 - tail : tail, phi, phi};
    }

    // A lower bound of f*(c Phi(z)) = phi(Phi^-1(c Phi(z))), 0 < c <= 1, within 2e-6 of it. By symmetry only the
    // smaller of p = c Phi(z) and 1 - p matters; a rational guess (Abramowitz & Stegun 26.2.23, error 4.5e-4) and
    // one step of Halley's method find its quantile.
    static GAUSSGURU_INLINE double shrunk_conjugate(double z, double c) {
        const double right = at(-z).slope;  // 1 - Phi(z), without cancellation
        const double p = c * at(z).slope, q = (1.0 - c) + c * right;
        const double m = p < q ? p : q;
        const double floor = 1e-300;
        const double t = std::sqrt(-2.0 * log_near(m > floor ? m : floor));
        const double guess = ((0.010328 * t + 0.802853) * t + 2.515517) /
                                 (((0.001308 * t + 0.189269) * t + 1.432788) * t + 1.0) - t;
        const Terms there = at(guess);
        const double u = (there.slope - m) / there.curvature;
        const double quantile = guess - u / (1.0 + 0.5 * guess * u);
        return m > floor ? density(std::fabs(quantile)) * (1.0 - 1e-6) : 0.0;
    }
};

constexpr double kRoot = 2.506628274631000502415765;  // sqrt(2 pi), with which f(0) equals that of the normal loss

// The logistic loss f(z) = log2(1 + 2^u) / sqrt(2 pi), u = sqrt(2 pi) z; f' = p = 2^u / (1 + 2^u),
// f'' = ln 2 sqrt(2 pi) p (1 - p), f - z f' = the binary entropy of p in bits, divided by sqrt(2 pi).
//
// All follow from e = 2^-|u| without cancellation. The product u is split into an exact high part and a rest.
struct Logistic {
    static constexpr double kSteep = 1.737462321272318283660309;    // ln 2 sqrt(2 pi)
    static constexpr double kShallow = 0.5755520495360812222834737;  // 1 / kSteep

    static GAUSSGURU_INLINE Terms at(double z) {
        const double distance = std::fabs(z);
        const double t = distance > 430.0 ? 430.0 : distance;  // 2^-u is 0 there; NaN passes
        const double high = as_double(as_bits(t) & 0xFFFFFFFFF8000000ull);
        const double big = -high * 2.5066282153129578;  // sqrt(2 pi) to 26 bits: this product is exact
        const double rest = -(high * 5.931804273874389028481105e-8 + (t - high) * kRoot);
        const Rounded k(big);
        const double r = ((big - k.value) + rest) * 0.69314718055994530942;
        const double e = exp_near(r) * k.first_power() * k.second_power();
        const double inverse = 1.0 / (1.0 + e), tail = e * inverse;
        const double excess = log_one_plus(e) * kShallow;
        const bool right = z > 0.0;
        return {right ? z + excess : excess, right ? inverse : tail, kSteep * tail * inverse, excess + t * tail};
    }

    // A lower bound of f*(c p), 0 < c <= 1, within 2e-7 of it: the entropy of m, the smaller of c p and 1 - c p.
    static GAUSSGURU_INLINE double shrunk_conjugate(double z, double c) {
        const double p = c * at(z).slope, q = (1.0 - c) + c * at(-z).slope;
        const double m = p < q ? p : q;
        const double floor = 1e-300;
        const double entropy = (1.0 - m) * minus_log_one_minus(m) - m * log_near(m > floor ? m : floor);
        return m > floor ? kShallow * entropy * (1.0 - 1e-7) : 0.0;
    }
};

// The quadratic loss: with u = sqrt(2 pi) z, sqrt(2 pi) f is 0 up to u = -4, u from 4 on, and (u + 4)^2/16 between;
// f - z f' = 4 f' (1 - f') / sqrt(2 pi). f'' jumps at both ends.
struct Quadratic {
    static constexpr double kCurvature = 0.3133285343288750628019707;  // sqrt(2 pi) / 8

    static GAUSSGURU_INLINE Terms at(double z) {
        const double u = z * kRoot + 4.0;
        const double inside = u < 0.0 ? 0.0 : u > 8.0 ? 8.0 : u;  // NaN passes
        const double slope = 0.125 * inside;
        return {u > 8.0 ? z : inside * inside * (0.0625 / kRoot), slope,
                u < 0.0 || u > 8.0 ? 0.0 : kCurvature + 0.0 * u, 4.0 / kRoot * slope * (1.0 - slope)};
    }

    static GAUSSGURU_INLINE double shrunk_conjugate(double z, double c) {
        const double alpha = c * at(z).slope;
        return 4.0 / kRoot * alpha * (1.0 - alpha);
    }
};

// The moment loss f(z) = (z + h) / 2, h = sqrt(1 + z^2); f' = (1 + z/h) / 2, f'' = 1/(2 h^3), f - z f' = 1/(2 h).
//
// All follow from h + |z| without cancellation.
struct Moment {
    static GAUSSGURU_INLINE Terms at(double z) {
        const double t = std::fabs(z), h = std::sqrt(1.0 + t * t), inverse = 1.0 / h;
        const double excess = 0.5 / (h + t), tail = excess * inverse, half = 0.5 * inverse;
        const bool right = z > 0.0;
        return {right ? z + excess : excess, right ? 1.0 - tail : tail, half * inverse * inverse, half};
    }

    // f*(p) = sqrt(p (1 - p)) at p = c f'(z).
    static GAUSSGURU_INLINE double shrunk_conjugate(double z, double c) {
        return std::sqrt(c * at(z).slope * ((1.0 - c) + c * at(-z).slope));
    }
};

template <class F>
inline void with_loss(int loss, F&& body) {
    switch (loss) {
        case GAUSSIAN: body(Gaussian{}); break;
        case LOGISTIC: body(Logistic{}); break;
        case QUADRATIC: body(Quadratic{}); break;
        case MOMENT: body(Moment{}); break;
    }
}

}  // namespace
}  // namespace gaussguru
