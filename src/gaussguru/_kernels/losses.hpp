// f, f' and f'' of each loss as branch-free functions of one number, so that loops over them vectorise.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

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
inline double polynomial(const double (&c)[N], double x) {
    double r = c[N - 1];
    for (int i = N - 2; i >= 0; --i) r = r * x + c[i];
    return r;
}

// The normal loss f(z) = z Phi(z) + phi(z), f' = Phi, f'' = phi, f - z f' = phi.
//
// With t = |z|: Phi(-t)/phi(t) = P1(t)/Q(t) and f(-t)/phi(t) = P2(t)/Q(t), rational minimax fits whose
// coefficients are all positive and satisfy P1 = (Q - P2)/t, so nothing cancels (relative error below 1e-15
// wherever the result is a normal number). The right half follows by symmetry: Phi(t) = 1 - Phi(-t),
// f(t) = t + f(-t).
struct Gaussian {
    static inline double density(double t) {
        // exp(-t^2/2)/sqrt(2 pi) for 0 <= t <= 40. The square is split into an exact high part and a rest,
        // else its rounding error, multiplied by t^2/2, would cost three digits in the tail.
        static constexpr double kExp[12] = {
            0.9999999999999999969291417, 0.9999999999999999997638425, 0.5000000000000018403927312,
            0.1666666666666668081981437, 0.04166666666648795251974929, 0.00833333333331958961630389,
            0.001388888895235286286634679, 0.0001984126989007640282934262, 0.00002480148544156131296626048,
            0.000002755724088722986859643557, 0.0000002763265472252779188974916, 2.511004920481865979347943e-8};
        const double high = as_double(as_bits(t) & 0xFFFFFFFFF8000000ull);
        const double big = -0.5 * high * high, rest = -0.5 * (t - high) * (t + high);
        // Adding 1.5 * 2^52 rounds to an integer and leaves it in the low bits of the sum.
        const double magic = 6755399441055744.0;
        const double shifted = big * 1.4426950408889634074 + magic;
        const double k = shifted - magic;
        const double r = ((big - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10) + rest;
        // 2^k as a product of two powers: k reaches -1154, below the exponent of a normal number.
        const double half = 0.5 * k + magic;
        const uint64_t bias = 1023;
        const double first = as_double((as_bits(half) + bias) << 52);
        const double second = as_double((as_bits(shifted) - as_bits(half) + bias) << 52);
        return polynomial(kExp, r) * 0.398942280401432677939946 * first * second;
    }

    static inline Terms at(double z) {
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
    static inline double shrunk_conjugate(double z, double c) {
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

    // log(x) of a positive normal number to about 1e-9: enough for a starting guess.
    static inline double log_near(double x) {
        const uint64_t bits = as_bits(x);
        // Move the cut of the mantissa from [1, 2) to [sqrt(1/2), sqrt(2)).
        const uint64_t shifted = bits - 0x3FE6A09E667F3BCDull;
        const double mantissa = as_double((shifted & 0x000FFFFFFFFFFFFFull) + 0x3FE6A09E667F3BCDull);
        const int64_t exponent = static_cast<int64_t>(shifted) >> 52;
        const double s = (mantissa - 1.0) / (mantissa + 1.0), s2 = s * s;
        const double series = 2.0 * s * (1.0 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9)))));
        return static_cast<double>(static_cast<int32_t>(exponent)) * 0.69314718055994530942 + series;
    }
};

}  // namespace
}  // namespace gaussguru
