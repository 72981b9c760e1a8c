// The LSTM's and the GRU's step between their products, forward and backward; `lstm.py` and
// `gru.py` have the equations. All rows are of one item of a batch at one step.
#ifndef CLEW_CELLS_H_
#define CLEW_CELLS_H_

#include <cstdint>

#include "numbers.h"

namespace clew {

// `projected`, `product` and `offset` are [4, size] in the order i, f, g, o; the state is c and h;
// kept are i, f, g, o and c.
template <typename T>
struct LSTMCell {
  static constexpr int64_t gates = 4, states = 2, kept = 5;

  static void forward(int64_t size, const T* projected, const T* product, const T* offset,
                      T* state, T* keep) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_f = size + d, at_g = 2 * size + d, at_o = 3 * size + d;
      const T i = sigmoid(projected[d] + (product[d] + offset[d]));
      const T f = sigmoid(projected[at_f] + (product[at_f] + offset[at_f]));
      const T g = hyperbolic_tangent(projected[at_g] + (product[at_g] + offset[at_g]));
      const T o = sigmoid(projected[at_o] + (product[at_o] + offset[at_o]));
      const T c = f * state[d] + i * g;
      state[d] = c;
      state[size + d] = o * hyperbolic_tangent(c);
      keep[d] = i;
      keep[at_f] = f;
      keep[at_g] = g;
      keep[at_o] = o;
      keep[4 * size + d] = c;
    }
  }

  // What `backward` needs of the step before: c.
  static const T* past(int64_t size, const T* keep, const T*) { return keep + 4 * size; }

  // `of_state` is the gradient of the state after the step and becomes that of the state before
  // it, but for what passes through the product.
  static void backward(int64_t size, const T* keep, const T* past, T* of_state, T* of_projected,
                       T* of_product) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_f = size + d, at_g = 2 * size + d, at_o = 3 * size + d;
      const T i = keep[d], f = keep[at_f], g = keep[at_g], o = keep[at_o];
      const T bent = hyperbolic_tangent(keep[4 * size + d]), of_h = of_state[size + d];
      const T of_c = of_state[d] + of_h * o * (T(1) - bent * bent);
      of_product[d] = of_projected[d] = of_c * g * i * (T(1) - i);
      of_product[at_f] = of_projected[at_f] = of_c * past[d] * f * (T(1) - f);
      of_product[at_g] = of_projected[at_g] = of_c * i * (T(1) - g * g);
      of_product[at_o] = of_projected[at_o] = of_h * bent * o * (T(1) - o);
      of_state[d] = of_c * f;
      of_state[size + d] = T(0);
    }
  }
};

// The order is r, z, n; the state is h; kept are r, z, n and h U_n + c.
template <typename T>
struct GRUCell {
  static constexpr int64_t gates = 3, states = 1, kept = 4;

  static void forward(int64_t size, const T* projected, const T* product, const T* offset,
                      T* state, T* keep) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_z = size + d, at_n = 2 * size + d;
      const T r = sigmoid(projected[d] + (product[d] + offset[d]));
      const T z = sigmoid(projected[at_z] + (product[at_z] + offset[at_z]));
      const T inner = product[at_n] + offset[at_n];
      const T n = hyperbolic_tangent(projected[at_n] + r * inner);
      state[d] = n + z * (state[d] - n);
      keep[d] = r;
      keep[at_z] = z;
      keep[at_n] = n;
      keep[3 * size + d] = inner;
    }
  }

  // What `backward` needs of the step before: h.
  static const T* past(int64_t, const T*, const T* output) { return output; }

  static void backward(int64_t size, const T* keep, const T* past, T* of_state, T* of_projected,
                       T* of_product) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_z = size + d, at_n = 2 * size + d;
      const T r = keep[d], z = keep[at_z], n = keep[at_n], of_h = of_state[d];
      const T of_n = of_h * (T(1) - z) * (T(1) - n * n);
      of_product[d] = of_projected[d] = of_n * keep[3 * size + d] * r * (T(1) - r);
      of_product[at_z] = of_projected[at_z] = of_h * (past[d] - n) * z * (T(1) - z);
      of_projected[at_n] = of_n;
      of_product[at_n] = of_n * r;
      of_state[d] = of_h * z;
    }
  }
};

}  // namespace clew

#endif  // CLEW_CELLS_H_
