// Elementwise functions that a compiler can turn into vector instructions.
#ifndef CLEW_NUMBERS_H_
#define CLEW_NUMBERS_H_

#include <cmath>
#include <cstdint>
#include <cstring>

// Tells the compiler that the iterations of the next loop touch different numbers.
#if defined(__clang__)
#define CLEW_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define CLEW_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace clew {

// exp(x) to 2 units in the last place, without a call: x = n ln 2 + r, a polynomial in r.
// Beyond the range of normal numbers it stays at the ends of that range; NaN stays NaN.
inline float exponential(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  const float n = __builtin_floorf(x * 1.44269504f + 0.5f);
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t bits = (static_cast<int32_t>(n) + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return p * power;
}

inline double exponential(double x) { return std::exp(x); }

template <typename T>
inline T sigmoid(T x) {
  return T(1) / (T(1) + exponential(-x));
}

// tanh(x) to 2 units in the last place: a polynomial near 0, where 1 - 2 / (exp(2x) + 1) would
// cancel; NaN stays NaN.
inline float hyperbolic_tangent(float x) {
  const float size = x < 0.0f ? -x : x, z = x * x;
  float p = -5.70498872745e-3f;
  p = p * z + 2.06390887954e-2f;
  p = p * z - 5.37397155531e-2f;
  p = p * z + 1.33314422036e-1f;
  p = p * z - 3.33332819422e-1f;
  const float far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  return size < 0.625f ? x + x * z * p : (x < 0.0f ? -far : far);
}

inline double hyperbolic_tangent(double x) { return std::tanh(x); }

template <typename T>
inline T relu(T x) {
  // Written such that NaN stays NaN.
  return x < T(0) ? T(0) : x;
}

}  // namespace clew

#endif  // CLEW_NUMBERS_H_
