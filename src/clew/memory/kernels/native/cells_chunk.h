// A recurrent cell over a chunk, forward and backward, for some items of a batch that share their
// weights. The state and the products of a step stay in the processor's caches.
#ifndef CLEW_CELLS_CHUNK_H_
#define CLEW_CELLS_CHUNK_H_


#include "batch.h"
#include "cells.h"
#include "panels.h"

namespace clew {

// Weight [size, gates size], offset [gates size], state [states, size], starts [time]. Joint [time,
// joint size] and apart [time, apart size] are the products of the inputs, backward the gates.
template <typename T>
struct CellChunk {
  int64_t time, size;
  Shared<T> weight, offset, state, joint, apart;
  Shared<bool> starts;
};

// Bias [gates size] is added to the products of the inputs. Outputs are [n, time, size], [n,
// states, size], the gates, and [n, time, size].
template <typename T>
struct CellOutputs {
  Shared<T> bias;
  T *outputs, *last, *joint, *apart, *kept;
};

// Of those the cells' gradients are made; outputs and kept are the forward pass's. `of_inner` is
// [n, time, apart size]: into the recurrent products where they differ from those of the inputs.
template <typename T>
struct CellGradients {
  Shared<T> outputs, kept, of_outputs, of_last;
  T *of_joint, *of_apart, *of_inner, *of_state;
};

template <template <typename> class Cell, typename T>
void cells_forward(const CellChunk<T>& c, const Panels<T>& weight, const int64_t* items,
                   int64_t count, const CellOutputs<T>& out) {
  using C = Cell<T>;
  const int64_t size = c.size, wide = C::states * size;
  const int64_t joint = C::joint * size, apart = C::apart * size;
  Room<T> room(count * (wide + weight.padded()));
  T *states = room.data(), *products = states + count * wide;
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(c.state.at(items[r]), wide, states + r * wide);
  for (int64_t t = 0; t < c.time; ++t) {
    for (int64_t r = 0; r < count; ++r)
      if (c.starts.at(items[r])[t]) std::fill_n(states + r * wide, wide, T(0));
    multiply_panels(count, states + wide - size, wide, weight, products);
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = items[r], step = n * c.time + t;
      T* state = states + r * wide;
      C::forward(size, c.joint.at(n) + t * joint, c.apart.at(n) + t * apart,
                 out.bias.at(n), products + r * weight.padded(), c.offset.at(n), state,
                 out.joint + step * joint, out.apart + step * apart, out.kept + step * size);
      std::copy_n(state + wide - size, size, out.outputs + step * size);
    }
  }
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(states + r * wide, wide, out.last + items[r] * wide);
}

// `turned` is the transposed weight.
template <template <typename> class Cell, typename T>
void cells_backward(const CellChunk<T>& c, const Panels<T>& turned, const int64_t* items,
                    int64_t count, const CellGradients<T>& g) {
  using C = Cell<T>;
  const int64_t size = c.size, wide = C::states * size, gates = C::gates * size;
  const int64_t joint = C::joint * size, apart = C::apart * size;
  Room<T> room(count * (wide + gates + turned.padded()) + size);
  T *states = room.data(), *products = states + count * wide, *back = products + count * gates;
  const T* zeros = back + count * turned.padded();
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(g.of_last.at(items[r]), wide, states + r * wide);
  for (int64_t t = c.time - 1; t >= 0; --t) {
    for (int64_t r = 0; r < count; ++r) {
      const int64_t n = items[r], step = n * c.time + t;
      T *state = states + r * wide, *of_h = state + wide - size, *product = products + r * gates;
      const T *of_output = g.of_outputs.at(n) + t * size;
      for (int64_t d = 0; d < size; ++d) of_h[d] += of_output[d];
      const T* keep = g.kept.at(n) + t * size;
      const T* past = t > 0 ? C::past(keep - size, g.outputs.at(n) + (t - 1) * size)
                            : c.state.at(n);
      C::backward(size, c.joint.at(n) + t * joint, c.apart.at(n) + t * apart, keep,
                  c.starts.at(n)[t] ? zeros : past, state, g.of_joint + step * joint,
                  g.of_apart + step * apart, g.of_inner + step * apart, product);
    }
    multiply_panels(count, products, gates, turned, back);
    for (int64_t r = 0; r < count; ++r) {
      T *state = states + r * wide, *of_h = state + wide - size;
      if (c.starts.at(items[r])[t]) {
        std::fill_n(state, wide, T(0));
        continue;
      }
      for (int64_t d = 0; d < size; ++d) of_h[d] += back[r * turned.padded() + d];
    }
  }
  for (int64_t r = 0; r < count; ++r)
    std::copy_n(states + r * wide, wide, g.of_state + items[r] * wide);
}

}  // namespace clew

#endif  // CLEW_CELLS_CHUNK_H_
