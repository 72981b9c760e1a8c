// The gradient of the matrix recurrence for one head over a chunk.
#ifndef CLEW_MATRIX_BACKWARD_H_
#define CLEW_MATRIX_BACKWARD_H_

#include "matrix.h"

namespace clew {

// Cotangents come in as `outputs` and `last`; gradients go out as the rest.
template <typename T>
struct MatrixGradients {
  const T *outputs, *last;
  T *queries, *keys, *values, *keeps, *rates, *erased, *shares, *state;
};

// What is collected during a piece, over all rows.
template <typename T>
struct MatrixPieceGradients {
  Room<T> query, key, keep, erased, share, rate, zeros;

  explicit MatrixPieceGradients(const MatrixPiece<T>& p)
      : query(p.query.size()),
        key(p.key.size()),
        keep(p.keep.size()),
        erased(p.erased.size()),
        share(p.share.size()),
        rate(p.rate.size()),
        zeros(kMatrixRows * p.wide) {}

  void clear() {
    for (Room<T>* all : {&query, &key, &keep, &erased, &share, &rate})
      std::fill(all->begin(), all->end(), T(0));
  }
};

// Adds to some numbers.
template <typename T>
inline void add_vector(T* to, typename Vector<T>::type v) {
  store_vector(to, load_vector(to) + v);
}

// `many` rows back through one step, as far as what was written and read: `of_state` becomes the
// gradient into the state after it, and the rows' own are those of what was written and held.
template <Rule rule, int many, typename T>
void retreat_writes(const MatrixPiece<T>& p, int64_t i, int64_t first, const T* after,
                    const T* of_read, T* of_state, MatrixPieceGradients<T>& of, T* of_written,
                    T* of_held) {
  using V = typename Vector<T>::type;
  const int64_t wide = p.wide;
  const T *query = &p.query[i * wide], *key = &p.key[i * wide];
  const T *share = rule == Rule::erase ? &p.share[i * wide] : nullptr;
  const T *written = &p.written[i * p.rows + first], *held = &p.held[i * p.rows + first];
  V into_written[many] = {}, into_held[many] = {};
  for (int64_t j = 0; j < wide; j += Vector<T>::lanes) {
    const V asked = load_vector(query + j), plus = load_vector(key + j);
    V of_query{}, of_key{}, of_share{};
    for (int k = 0; k < many; ++k) {
      T* at = of_state + k * wide + j;
      const V g = load_vector(at) + of_read[k] * asked;
      store_vector(at, g);
      of_query += of_read[k] * load_vector(after + k * wide + j);
      of_key += written[k] * g;
      into_written[k] += g * plus;
      if constexpr (rule == Rule::erase) {
        of_share -= held[k] * g;
        into_held[k] -= g * load_vector(share + j);
      }
    }
    add_vector(&of.query[i * wide + j], of_query);
    add_vector(&of.key[i * wide + j], of_key);
    if constexpr (rule == Rule::erase) add_vector(&of.share[i * wide + j], of_share);
  }
  sum_each<many>(into_written, of_written);
  if constexpr (rule == Rule::erase) sum_each<many>(into_held, of_held);
}

// And back through what is kept and held, to the gradient of the state before it. What was held is
// `before` times the vector `asked`, whose gradient goes to `of_asked`.
template <Rule rule, bool keyed, int many, typename T>
void retreat_keeps(const MatrixPiece<T>& p, int64_t i, const T* before, const T* of_held,
                   T* of_state, T* of_asked, MatrixPieceGradients<T>& of) {
  using V = typename Vector<T>::type;
  const int64_t wide = p.wide;
  const T *keep = &p.keep[i * wide];
  const T* asked = rule == Rule::delta ? &p.key[i * wide] : &p.erased[i * wide];
  V of_whole{};
  for (int64_t j = 0; j < wide; j += Vector<T>::lanes) {
    const V kept = decay_at<keyed>(keep, j);
    V of_keep{}, into_asked{};
    for (int k = 0; k < many; ++k) {
      T* at = of_state + k * wide + j;
      const V g = load_vector(at), old = load_vector(before + k * wide + j);
      of_keep += g * old;
      V back = g * kept;
      if constexpr (rule != Rule::sum) {
        back += of_held[k] * load_vector(asked + j);
        into_asked += of_held[k] * old;
      }
      store_vector(at, back);
    }
    if constexpr (keyed) add_vector(&of.keep[i * wide + j], of_keep);
    of_whole += of_keep;
    if constexpr (rule != Rule::sum) add_vector(of_asked + j, into_asked);
  }
  if constexpr (!keyed) of.keep[i * wide] += sum_lanes<T>(of_whole);
}

// Some rows of C back through a piece; `states` as `advance_matrix` left them.
template <Rule rule, bool keyed, int many, typename T>
void retreat_matrix(const MatrixChunk<T>& c, const MatrixGradients<T>& g, const MatrixPiece<T>& p,
                    int64_t n, int64_t h, int64_t first, const T* states, T* of_state,
                    MatrixPieceGradients<T>& of) {
  const int64_t wide = p.wide, stride = many * wide;
  for (int64_t i = p.count - 1; i >= 0; --i) {
    const int64_t at = c.at(n, p.begin + i, h) * c.value + first;
    const T* before = p.starts[i] ? of.zeros.data() : states + i * stride;
    T of_written[many], of_held[many];
    retreat_writes<rule, many>(p, i, first, states + (i + 1) * stride, g.outputs + at, of_state, of,
                               of_written, of_held);
    T* of_asked = nullptr;
    if constexpr (rule == Rule::delta) {
      const T *value = &p.value[i * p.rows + first], *held = &p.held[i * p.rows + first];
      const T keep = p.keep[i * wide], rate = p.rate[i];
      for (int k = 0; k < many; ++k) {
        of.rate[i] += of_written[k] * (value[k] - keep * held[k]);
        of_written[k] *= rate;
        of.keep[i * wide] -= of_written[k] * held[k];
        of_held[k] = -of_written[k] * keep;
      }
      of_asked = &of.key[i * wide];
    } else if constexpr (rule == Rule::erase) {
      of_asked = &of.erased[i * wide];
    }
    std::copy_n(of_written, many, g.values + at);
    if (p.starts[i]) {
      std::fill_n(of_state, stride, T(0));
      continue;
    }
    retreat_keeps<rule, keyed, many>(p, i, before, of_held, of_state, of_asked, of);
  }
}

template <Rule rule, bool keyed, typename T>
void matrix_backward(const MatrixChunk<T>& c, const MatrixGradients<T>& g, int64_t n, int64_t h) {
  const int64_t wide = c.wide(), size = c.value * wide;
  const int64_t pieces = (c.time + kPiece - 1) / kPiece;
  Room<T> kept(pieces * size), of_state(size), states((kPiece + 1) * kMatrixRows * wide);
  MatrixPiece<T> p(c);
  MatrixPieceGradients<T> of(p);
  load_rows(c, n, h, c.state, kept.data());
  for (int64_t piece = 0; piece + 1 < pieces; ++piece) {
    T* state = kept.data() + (piece + 1) * size;
    std::copy_n(state - size, size, state);
    p.enter(c, n, h, piece);
    advance_piece<rule, keyed>(p, state);
  }
  load_rows(c, n, h, g.last, of_state.data());
  for (int64_t piece = pieces - 1; piece >= 0; --piece) {
    p.enter(c, n, h, piece);
    of.clear();
    each_group<kMatrixRows>(c.value, [&](int64_t v, auto many) {
      const int64_t stride = many.value * wide;
      std::copy_n(kept.data() + piece * size + v * wide, stride, states.data());
      advance_matrix<rule, keyed, many.value>(p, v, states.data(), states.data() + stride, stride);
      retreat_matrix<rule, keyed, many.value>(c, g, p, n, h, v, states.data(),
                                              of_state.data() + v * wide, of);
    });
    for (int64_t i = 0; i < p.count; ++i) {
      const int64_t at = c.at(n, p.begin + i, h);
      std::copy_n(&of.query[i * wide], c.key, g.queries + at * c.key);
      std::copy_n(&of.key[i * wide], c.key, g.keys + at * c.key);
      std::copy_n(&of.keep[i * wide], c.decays, g.keeps + at * c.decays);
      if constexpr (rule == Rule::delta) g.rates[at] = of.rate[i];
      if constexpr (rule != Rule::erase) continue;
      std::copy_n(&of.erased[i * wide], c.key, g.erased + at * c.key);
      std::copy_n(&of.share[i * wide], c.key, g.shares + at * c.key);
    }
  }
  store_rows(c, n, h, of_state.data(), g.state);
}

}  // namespace clew

#endif  // CLEW_MATRIX_BACKWARD_H_
