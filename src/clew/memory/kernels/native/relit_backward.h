// The gradient of ReLiT's recurrence for one head over a chunk.
#ifndef CLEW_RELIT_BACKWARD_H_
#define CLEW_RELIT_BACKWARD_H_

#include "relit.h"

namespace clew {

// Cotangents come in as `outputs`, `last_matrix` and `last_normaliser`; gradients go out as the
// rest.
template <typename T>
struct ReLiTGradients {
  const T *outputs, *last_matrix, *last_normaliser;
  T *products, *maps, *matrix, *normaliser;
};

// What is collected during a piece: the gradients of every step's features, and of what the rows
// read.
template <typename T>
struct PieceGradients {
  std::vector<FeatureGradients<T>> steps;
  Room<T> below, of_below, zeros;

  explicit PieceGradients(const ReLiT<T>& o)
      : below(kPiece), of_below(kPiece), zeros(kRows * o.sizes.wide()) {
    for (int64_t i = 0; i < kPiece; ++i) steps.emplace_back(o.sizes);
  }
};

// `many` rows back through one step: from the gradient of the state after it to that of the state
// before it. `sums` takes the gradients of `from`, `by` and `added`.
template <int many, typename T>
void retreat_rows(const Piece<T>& p, int64_t i, int64_t first, int64_t wide, const T* before,
                  const T* after, const T* of_read, T* of_state, FeatureGradients<T>& of,
                  T (*sums)[many]) {
  const T *from = &p.from[i * p.rows + first], *by = &p.by[i * p.rows + first];
  const T *added = &p.added[i * p.rows + first], *keep = p.steps[i].keep;
  const T *add = p.steps[i].add, *query = p.steps[i].query;
  T *of_keep = of.keep, *of_add = of.add, *of_query = of.query;
  using V = typename Vector<T>::type;
  V of_from[many] = {}, of_by[many] = {}, of_added[many] = {};
  int64_t j = 0;
  for (; j + Vector<T>::lanes <= wide; j += Vector<T>::lanes) {
    const V kept = load_vector(keep + j), plus = load_vector(add + j);
    const V asked = load_vector(query + j);
    V sum_keep = load_vector(of_keep + j), sum_add = load_vector(of_add + j);
    V sum_query = load_vector(of_query + j);
    for (int k = 0; k < many; ++k) {
      const int64_t at = k * wide + j;
      const V g = load_vector(of_state + at) + of_read[k] * asked;
      const V of_decay = g * load_vector(before + at);
      sum_query += of_read[k] * load_vector(after + at);
      sum_add += added[k] * g;
      sum_keep += by[k] * of_decay;
      of_from[k] += of_decay;
      of_by[k] += of_decay * kept;
      of_added[k] += g * plus;
      store_vector(of_state + at, g * (from[k] + by[k] * kept));
    }
    store_vector(of_keep + j, sum_keep);
    store_vector(of_add + j, sum_add);
    store_vector(of_query + j, sum_query);
  }
  sum_each<many>(of_from, sums[0]);
  sum_each<many>(of_by, sums[1]);
  sum_each<many>(of_added, sums[2]);
  for (; j < wide; ++j) {
    for (int k = 0; k < many; ++k) {
      const int64_t at = k * wide + j;
      const T g = of_state[at] + of_read[k] * query[j], of_decay = g * before[at];
      of_query[j] += of_read[k] * after[at];
      of_add[j] += added[k] * g;
      of_keep[j] += by[k] * of_decay;
      sums[0][k] += of_decay;
      sums[1][k] += of_decay * keep[j];
      sums[2][k] += g * add[j];
      of_state[at] = g * (from[k] + by[k] * keep[j]);
    }
  }
}

template <typename T>
void store(const ReLiT<T>& o, int64_t n, int64_t h, const T* state, T* matrix, T* normaliser) {
  const int64_t at = n * o.sizes.heads + h, wide = o.sizes.wide(), size = o.sizes.head * wide;
  std::copy_n(state, size, matrix + at * size);
  std::copy_n(state + size, wide, normaliser + at * wide);
}

// Some rows of C back through a piece; `states` as `advance_rows` left them, `of_outputs` from
// where the piece begins.
template <int many, typename T>
void retreat_group(const ReLiT<T>& o, const Piece<T>& p, int64_t first, const T* states,
                   const T* of_outputs, T* of_state, PieceGradients<T>& of) {
  const int64_t wide = o.sizes.wide(), stride = many * wide;
  for (int64_t i = p.count - 1; i >= 0; --i) {
    const Features<T>& f = p.steps[i];
    const T* before = p.starts[i] ? of.zeros.data() : states + i * stride;
    T of_read[many], sums[3][many];
    for (int k = 0; k < many; ++k) {
      const T of_output = of_outputs[i * o.sizes.heads * o.sizes.head + first + k];
      of_read[k] = of_output / of.below[i];
      of.of_below[i] -= of_read[k] * p.read[i * p.rows + first + k] / of.below[i];
    }
    retreat_rows<many>(p, i, first, wide, before, states + (i + 1) * stride, of_read, of_state,
                       of.steps[i], sums);
    for (int k = 0; k < many; ++k) {
      const int64_t v = first + k;
      const T of_beta = o.joint ? sums[1][k] - sums[0][k] : -sums[1][k];
      of.steps[i].beta[v] += of_beta + sums[2][k] * f.value[v];
      of.steps[i].value[v] += sums[2][k] * f.beta[v];
    }
    if (p.starts[i]) std::fill_n(of_state, stride, T(0));
  }
}

template <typename T>
void retreat_normaliser(const ReLiT<T>& o, const Piece<T>& p, const T* states, T* of_state,
                        PieceGradients<T>& of) {
  const int64_t wide = o.sizes.wide();
  T ignored[3][1];
  for (int64_t i = p.count - 1; i >= 0; --i) {
    const T* before = p.starts[i] ? of.zeros.data() : states + i * wide;
    retreat_rows<1>(p, i, o.sizes.head, wide, before, states + (i + 1) * wide, &of.of_below[i],
                    of_state, of.steps[i], ignored);
    if (p.starts[i]) std::fill_n(of_state, wide, T(0));
  }
}

template <typename T>
void relit_backward(const ReLiT<T>& o, const ReLiTGradients<T>& g, int64_t n, int64_t h) {
  const Sizes& s = o.sizes;
  const int64_t wide = s.wide(), size = o.state_size(), head = s.head;
  const int64_t pieces = (s.time + kPiece - 1) / kPiece;
  Room<T> kept(pieces * size), of_state(size);
  Room<T> states((kPiece + 1) * kRows * wide), sums((kPiece + 1) * wide);
  Piece<T> p(o);
  PieceGradients<T> of(o);
  load(o, n, h, o.matrix, o.normaliser, kept.data());
  for (int64_t piece = 0; piece + 1 < pieces; ++piece) {
    T* state = kept.data() + (piece + 1) * size;
    std::copy_n(state - size, size, state);
    p.enter(o, n, h, piece);
    each_group(o.rows(), [&](int64_t v, auto many) {
      advance_rows<many.value>(p, v, wide, state + v * wide, state + v * wide, 0);
    });
  }
  load(o, n, h, g.last_matrix, g.last_normaliser, of_state.data());
  for (int64_t piece = pieces - 1; piece >= 0; --piece) {
    p.enter(o, n, h, piece);
    const T* begin = kept.data() + piece * size;
    const int64_t t = n * s.time + p.begin;
    std::copy_n(begin + head * wide, wide, sums.data());
    advance_rows<1>(p, head, wide, sums.data(), sums.data() + wide, wide);
    for (int64_t i = 0; i < p.count; ++i) {
      of.steps[i].clear();
      of.below[i] = p.read[i * p.rows + head] + T(o.epsilon);
      of.of_below[i] = T(0);
    }
    each_group(head, [&](int64_t v, auto many) {
      std::copy_n(begin + v * wide, many.value * wide, states.data());
      advance_rows<many.value>(p, v, wide, states.data(), states.data() + many.value * wide,
                               many.value * wide);
      retreat_group<many.value>(o, p, v, states.data(), g.outputs + (t * s.heads + h) * head,
                                of_state.data() + v * wide, of);
    });
    retreat_normaliser(o, p, sums.data(), of_state.data() + head * wide, of);
    for (int64_t i = 0; i < p.count; ++i)
      of.steps[i].write(s, p.steps[i], g.products + (t + i) * s.step_products() + h * head,
                        g.maps + (t + i) * s.step_maps() + h * s.eta);
  }
  store(o, n, h, of_state.data(), g.matrix, g.normaliser);
}

}  // namespace clew

#endif  // CLEW_RELIT_BACKWARD_H_
