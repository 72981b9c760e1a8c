// AReLiT's recurrence for one head over a chunk, forward and backward; `arelit.py` has the
// equations. States are not stored: the backward pass keeps one of every `kPiece`, and runs from
// there again.
#ifndef CLEW_ARELIT_H_
#define CLEW_ARELIT_H_

#include <algorithm>
#include <cstdint>

#include "features.h"
#include "tiles.h"

namespace clew {

template <typename T>
struct AReLiT {
  Sizes sizes;
  int64_t rows, vectors;  // of keys and of values; the last `vectors` rows belong to the values
  const double* weights;  // [vectors]
  double scale, epsilon;
  const T *products, *maps, *cosines, *keys, *values;
  const bool* starts;

  int64_t state_size() const { return rows * sizes.wide() + vectors * sizes.head; }
  int64_t skip() const { return rows - vectors; }
};

// Where the n-th chunk's step t stands for head h.
template <typename T>
struct Place {
  int64_t products, maps, cosines, starts, outputs;
  Place(const AReLiT<T>& w, int64_t n, int64_t t, int64_t h) {
    const Sizes& s = w.sizes;
    starts = n * s.time + t;
    products = starts * s.step_products() + h * s.head;
    maps = starts * s.step_maps() + h * s.eta;
    cosines = starts * w.rows;
    outputs = (starts * s.heads + h) * s.head;
  }
};

// Copies one head's state out of keys [n, rows, heads, eta, head] and values [n, vectors, heads,
// head], or back into them.
template <typename T, typename Move>
void each_row(const AReLiT<T>& w, int64_t n, int64_t h, const Move& move) {
  const Sizes& s = w.sizes;
  int64_t at = 0;
  for (int64_t k = 0; k < w.rows; ++k, at += s.wide())
    move(true, ((n * w.rows + k) * s.heads + h) * s.wide(), at, s.wide());
  for (int64_t k = 0; k < w.vectors; ++k, at += s.head)
    move(false, ((n * w.vectors + k) * s.heads + h) * s.head, at, s.head);
}

template <typename T>
void load(const AReLiT<T>& w, int64_t n, int64_t h, const T* keys, const T* values, T* state) {
  each_row(w, n, h, [&](bool is_key, int64_t from, int64_t at, int64_t size) {
    std::copy_n((is_key ? keys : values) + from, size, state + at);
  });
}

template <typename T>
void store(const AReLiT<T>& w, int64_t n, int64_t h, const T* state, T* keys, T* values) {
  each_row(w, n, h, [&](bool is_key, int64_t to, int64_t at, int64_t size) {
    std::copy_n(state + at, size, (is_key ? keys : values) + to);
  });
}

// Some key vectors at once, so that keep, add and query are read once for them. The vectors are said
// aloud, as compilers leave a loop with several sums as it is.
template <int count, typename T>
void advance_keys(const T* before, T* after, const Features<T>& f,
                  const T* cosines, int64_t wide, T* read) {
  using V = typename Vector<T>::type;
  const T *keep = f.keep, *add = f.add, *query = f.query;
  V sums[count] = {};
  T rest[count] = {};
  int64_t i = 0;
  for (; i + Vector<T>::lanes <= wide; i += Vector<T>::lanes) {
    const V kept = load_vector(keep + i), added = load_vector(add + i);
    const V asked = load_vector(query + i);
    for (int k = 0; k < count; ++k) {
      const V x = kept * load_vector(before + k * wide + i) + cosines[k] * added;
      store_vector(after + k * wide + i, x);
      sums[k] += x * asked;
    }
  }
  for (; i < wide; ++i) {
    for (int k = 0; k < count; ++k) {
      const T x = keep[i] * before[k * wide + i] + cosines[k] * add[i];
      after[k * wide + i] = x;
      rest[k] += x * query[i];
    }
  }
  sum_each<count>(sums, read);
  for (int k = 0; k < count; ++k) read[k] += rest[k];
}

// One step: the state after it, what every key vector reads, and the output if it is wanted.
template <typename T>
void advance(const AReLiT<T>& w, const Features<T>& f, const T* cosines, const T* before, T* after,
             T* read, T* output) {
  const Sizes& s = w.sizes;
  const int64_t wide = s.wide();
  each_group(w.rows, [&](int64_t k, auto count) {
    advance_keys<count.value>(before + k * wide, after + k * wide, f, cosines + k, wide, read + k);
  });
  const T* old = before + w.rows * wide;
  T* values = after + w.rows * wide;
  const T* waves = cosines + w.skip();
  for (int64_t m = 0; m < w.vectors; ++m) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < s.head; ++d)
      values[m * s.head + d] =
          (T(1) - f.beta[d]) * old[m * s.head + d] + waves[m] * (f.beta[d] * f.value[d]);
  }
  if (output == nullptr) return;
  const T below = read[0] / T(w.scale) + T(w.epsilon);
  std::fill_n(output, s.head, T(0));
  for (int64_t m = 0; m < w.vectors; ++m) {
    const T weight = T(w.weights[m]) * read[w.skip() + m] / below;
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < s.head; ++d) output[d] += weight * values[m * s.head + d];
  }
}

// The whole chunk of one head; `outputs` [n, time, heads, head] may be null, `keep_state` is
// called with (t, state) before every step.
template <typename T, typename Keep>
void run_arelit(const AReLiT<T>& w, int64_t n, int64_t h, T* outputs, T* state, const Keep& keep) {
  const Sizes& s = w.sizes;
  Room<T> room(Features<T>::size(s)), read(w.rows);
  Features<T> f(s, room.data());
  load(w, n, h, w.keys, w.values, state);
  for (int64_t t = 0; t < s.time; ++t) {
    const Place<T> at(w, n, t, h);
    keep(t, state);
    if (w.starts[at.starts]) std::fill_n(state, w.state_size(), T(0));
    f.read(s, w.products + at.products, w.maps + at.maps);
    T* output = outputs == nullptr ? nullptr : outputs + at.outputs;
    advance(w, f, w.cosines + at.cosines, state, state, read.data(), output);
  }
}

template <typename T>
void arelit_forward(const AReLiT<T>& w, int64_t n, int64_t h, T* outputs, T* keys, T* values) {
  Room<T> state(w.state_size());
  run_arelit(w, n, h, outputs, state.data(), [](int64_t, const T*) {});
  store(w, n, h, state.data(), keys, values);
}

}  // namespace clew

#endif  // CLEW_ARELIT_H_
