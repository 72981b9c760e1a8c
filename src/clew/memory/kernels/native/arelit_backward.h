// The gradient of AReLiT's recurrence for one head over a chunk.
#ifndef CLEW_ARELIT_BACKWARD_H_
#define CLEW_ARELIT_BACKWARD_H_

#include "arelit.h"

namespace clew {

// Cotangents come in as `outputs`, `last_keys` and `last_values`; gradients go out as the rest.
template <typename T>
struct AReLiTGradients {
  const T *outputs, *last_keys, *last_values;
  T *products, *maps, *keys, *values;
};

// Some key vectors at once: from the gradient of the state after a step to that of the state
// before it, collecting those of keep, add and query. `none` says that the state before was reset.
template <int count, typename T>
void retreat_keys(T* of_state, const T* after, const T* before,
                  const Features<T>& f, const T* cosines, const T* of_read, int64_t wide,
                  FeatureGradients<T>& of) {
  const T *keep = f.keep, *query = f.query;
  T *of_keep = of.keep, *of_add = of.add, *of_query = of.query;
  CLEW_INDEPENDENT
  for (int64_t i = 0; i < wide; ++i) {
    T sum_keep = of_keep[i], sum_add = of_add[i], sum_query = of_query[i];
    for (int k = 0; k < count; ++k) {
      const T g = of_state[k * wide + i] + of_read[k] * query[i];
      sum_query += of_read[k] * after[k * wide + i];
      sum_add += cosines[k] * g;
      sum_keep += g * before[k * wide + i];
      of_state[k * wide + i] = g * keep[i];
    }
    of_keep[i] = sum_keep;
    of_add[i] = sum_add;
    of_query[i] = sum_query;
  }
}

// What the output's cotangent says of the readings, and of the value vectors.
template <typename T>
void retreat_readout(const AReLiT<T>& w, const T* read, const T* values, const T* of_output,
                     T* of_values, T* of_read) {
  const int64_t head = w.sizes.head;
  const T below = read[0] / T(w.scale) + T(w.epsilon);
  std::fill_n(of_read, w.rows, T(0));
  T of_below = 0;
  for (int64_t m = 0; m < w.vectors; ++m) {
    const T weight = T(w.weights[m]) / below, reading = read[w.skip() + m];
    T sum = 0;
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < head; ++d) {
      sum += of_output[d] * values[m * head + d];
      of_values[m * head + d] += weight * reading * of_output[d];
    }
    of_read[w.skip() + m] += weight * sum;
    of_below -= weight * reading * sum / below;
  }
  of_read[0] += of_below / T(w.scale);
}

template <typename T>
void retreat_values(const AReLiT<T>& w, const Features<T>& f, const T* waves, const T* before,
                    T* of_values, FeatureGradients<T>& of) {
  const int64_t head = w.sizes.head;
  for (int64_t m = 0; m < w.vectors; ++m) {
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < head; ++d) {
      const T g = of_values[m * head + d], added = waves[m] * g;
      of.value[d] += added * f.beta[d];
      of.beta[d] += added * f.value[d] - g * before[m * head + d];
      of_values[m * head + d] = g * (T(1) - f.beta[d]);
    }
  }
}

// One step back. `before` is the state that the step began with, after a reset.
template <typename T>
void retreat(const AReLiT<T>& w, const Features<T>& f, const T* cosines, const T* before,
             const T* after, const T* read, const T* of_output, T* of_state, T* of_read,
             FeatureGradients<T>& of) {
  const int64_t wide = w.sizes.wide(), keys = w.rows * wide;
  of.clear();
  retreat_readout(w, read, after + keys, of_output, of_state + keys, of_read);
  each_group(w.rows, [&](int64_t k, auto count) {
    retreat_keys<count.value>(of_state + k * wide, after + k * wide, before + k * wide, f,
                              cosines + k, of_read + k, wide, of);
  });
  retreat_values(w, f, cosines + w.skip(), before + keys, of_state + keys, of);
}

template <typename T>
void arelit_backward(const AReLiT<T>& w, const AReLiTGradients<T>& g, int64_t n, int64_t h) {
  const Sizes& s = w.sizes;
  const int64_t size = w.state_size(), features = Features<T>::size(s);
  const int64_t pieces = (s.time + kPiece - 1) / kPiece;
  Room<T> kept(pieces * size), states((kPiece + 1) * size), zeros(size), of_state(size);
  Room<T> room(kPiece * features), read(kPiece * w.rows), of_read(w.rows);
  FeatureGradients<T> of(s);
  run_arelit(w, n, h, static_cast<T*>(nullptr), states.data(), [&](int64_t t, const T* state) {
    if (t % kPiece == 0) std::copy_n(state, size, kept.data() + t / kPiece * size);
  });
  std::vector<Features<T>> steps;
  for (int64_t i = 0; i < kPiece; ++i) steps.emplace_back(s, room.data() + i * features);
  load(w, n, h, g.last_keys, g.last_values, of_state.data());
  for (int64_t piece = pieces - 1; piece >= 0; --piece) {
    const int64_t begin = piece * kPiece, count = std::min(kPiece, s.time - begin);
    std::copy_n(kept.data() + piece * size, size, states.data());
    auto before = [&](int64_t i) {
      return w.starts[n * s.time + begin + i] ? zeros.data() : states.data() + i * size;
    };
    for (int64_t i = 0; i < count; ++i) {
      const Place<T> at(w, n, begin + i, h);
      fetch<0>(s, w.products + at.products + 3 * s.step_products());
      steps[i].read(s, w.products + at.products, w.maps + at.maps);
      advance(w, steps[i], w.cosines + at.cosines, before(i), states.data() + (i + 1) * size,
              read.data() + i * w.rows, static_cast<T*>(nullptr));
    }
    for (int64_t i = count - 1; i >= 0; --i) {
      const Place<T> at(w, n, begin + i, h);
      fetch<1>(s, g.products + at.products - 2 * s.step_products());
      retreat(w, steps[i], w.cosines + at.cosines, before(i), states.data() + (i + 1) * size,
              read.data() + i * w.rows, g.outputs + at.outputs, of_state.data(), of_read.data(),
              of);
      of.write(s, steps[i], g.products + at.products, g.maps + at.maps);
      if (w.starts[at.starts]) std::fill(of_state.begin(), of_state.end(), T(0));
    }
  }
  store(w, n, h, of_state.data(), g.keys, g.values);
}

}  // namespace clew

#endif  // CLEW_ARELIT_BACKWARD_H_
