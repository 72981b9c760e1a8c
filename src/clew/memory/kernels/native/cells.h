// The LSTM's and the GRU's step between their products, forward and backward; `lstm.py` and
// `gru.py` have the equations. All rows are of one item of a batch at one step.
//
// Of the gates those that add both products come first, `joint`; the others are `apart`. Gates may
// be written over the products of the inputs, and gradients over gates and over what was kept.
#ifndef CLEW_CELLS_H_
#define CLEW_CELLS_H_

#include <cstdint>

#include "numbers.h"

namespace clew {

// `projected`, `bias`, `product`, `offset` and `open`, the gates, are [4, size]: i, f, g, o;
// the state is c and h; kept besides the gates is c.
template <typename T>
struct LSTMCell {
  static constexpr int64_t joint = 4, apart = 0, gates = joint + apart, states = 2;

  static void forward(int64_t size, const T* projected, const T*, const T* bias, const T* product,
                      const T* offset, T* state, T* open, T*, T* keep) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_f = size + d, at_g = 2 * size + d, at_o = 3 * size + d;
      const auto sum = [=](int64_t k) {
        return (projected[k] + bias[k]) + (product[k] + offset[k]);
      };
      const T i = sigmoid(sum(d)), f = sigmoid(sum(at_f));
      const T g = hyperbolic_tangent(sum(at_g)), o = sigmoid(sum(at_o));
      const T c = f * state[d] + i * g;
      state[d] = c;
      state[size + d] = o * hyperbolic_tangent(c);
      open[d] = i;
      open[at_f] = f;
      open[at_g] = g;
      open[at_o] = o;
      keep[d] = c;
    }
  }

  // What `backward` needs of the step before: c.
  static const T* past(const T* keep, const T*) { return keep; }

  // `of_state` is the gradient of the state after the step and becomes that of the state before
  // it, but for what passes through the product.
  static void backward(int64_t size, const T* open, const T*, const T* keep, const T* past,
                       T* of_state, T* of_projected, T*, T*, T* of_product) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_f = size + d, at_g = 2 * size + d, at_o = 3 * size + d;
      const T i = open[d], f = open[at_f], g = open[at_g], o = open[at_o];
      const T bent = hyperbolic_tangent(keep[d]), of_h = of_state[size + d];
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

// The order is r, z and, apart, n; the state is h; kept besides those three is h U_n + c.
template <typename T>
struct GRUCell {
  static constexpr int64_t joint = 2, apart = 1, gates = joint + apart, states = 1;

  static void forward(int64_t size, const T* projected, const T* projected_n, const T* bias,
                      const T* product, const T* offset, T* state, T* open, T* open_n, T* keep) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_z = size + d, at_n = 2 * size + d;
      const T r = sigmoid((projected[d] + bias[d]) + (product[d] + offset[d]));
      const T z = sigmoid((projected[at_z] + bias[at_z]) + (product[at_z] + offset[at_z]));
      const T inner = product[at_n] + offset[at_n];
      const T n = hyperbolic_tangent((projected_n[d] + bias[at_n]) + r * inner);
      state[d] = n + z * (state[d] - n);
      open[d] = r;
      open[at_z] = z;
      open_n[d] = n;
      keep[d] = inner;
    }
  }

  // What `backward` needs of the step before: h.
  static const T* past(const T*, const T* output) { return output; }

  // `of_inner` is the gradient of what was kept.
  static void backward(int64_t size, const T* open, const T* open_n, const T* keep, const T* past,
                       T* of_state, T* of_projected, T* of_n_projected, T* of_inner,
                       T* of_product) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < size; ++d) {
      const int64_t at_z = size + d, at_n = 2 * size + d;
      const T r = open[d], z = open[at_z], n = open_n[d], of_h = of_state[d];
      const T of_n = of_h * (T(1) - z) * (T(1) - n * n);
      of_product[d] = of_projected[d] = of_n * keep[d] * r * (T(1) - r);
      of_product[at_z] = of_projected[at_z] = of_h * (past[d] - n) * z * (T(1) - z);
      of_n_projected[d] = of_n;
      of_product[at_n] = of_inner[d] = of_n * r;
      of_state[d] = of_h * z;
    }
  }
};

}  // namespace clew

#endif  // CLEW_CELLS_H_
