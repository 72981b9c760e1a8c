// The matrix recurrence for one head over a chunk, forward and backward;
// `parts/matrix_recurrence.py` has the equations. Every row of C depends on no other, so that some
// rows at a time go through some steps, in the first cache. States are not stored: the backward
// pass keeps one of every `kPiece`, and runs from there again.
#ifndef CLEW_MATRIX_H_
#define CLEW_MATRIX_H_

#include <algorithm>
#include <cstdint>

#include "groups.h"
#include "tiles.h"

namespace clew {

// Rows that are taken together: a step waits for the sums of the one before it, and more rows wait
// together.
constexpr int kMatrixRows = kTileRows;

// What a step writes: its value; that less what is held of its key; or its value, and less of what
// is held of another key.
enum class Rule { sum, delta, erase };

// Query, key, erased and share are [n, time, heads, key], value [.., value], keep [.., decays], one
// for a head or for every key, and rate [.., heads].
template <typename T>
struct MatrixChunk {
  int64_t time, heads, key, value, decays;
  const T *queries, *keys, *values, *keeps, *rates, *erased, *shares, *state;
  const bool* starts;

  int64_t wide() const { return round_up(key, Vector<T>::lanes); }
  int64_t at(int64_t n, int64_t t, int64_t h) const { return (n * time + t) * heads + h; }
  int64_t longest() const { return std::min(kPiece, time); }
};

// Some steps of one head. Rows of keys lie behind each other, with zeros up to whole vectors.
template <typename T>
struct MatrixPiece {
  int64_t begin, count, rows, wide;
  Room<T> query, key, keep, erased, share, value, rate, held, written, read;
  const bool* starts;

  explicit MatrixPiece(const MatrixChunk<T>& c)
      : rows(c.value),
        wide(c.wide()),
        query(c.longest() * wide),
        key(c.longest() * wide),
        keep(c.longest() * wide),
        erased(c.erased ? c.longest() * wide : 0),
        share(erased.size()),
        value(c.longest() * rows),
        rate(c.longest()),
        held(c.longest() * rows),
        written(c.longest() * rows),
        read(c.longest() * rows) {}

  void enter(const MatrixChunk<T>& c, int64_t n, int64_t h, int64_t piece) {
    begin = piece * kPiece;
    count = std::min(kPiece, c.time - begin);
    starts = c.starts + n * c.time + begin;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = c.at(n, begin + i, h);
      std::copy_n(c.queries + at * c.key, c.key, &query[i * wide]);
      std::copy_n(c.keys + at * c.key, c.key, &key[i * wide]);
      std::copy_n(c.values + at * rows, rows, &value[i * rows]);
      std::copy_n(c.keeps + at * c.decays, c.decays, &keep[i * wide]);
      if (c.rates) rate[i] = c.rates[at];
      if (!c.erased) continue;
      std::copy_n(c.erased + at * c.key, c.key, &erased[i * wide]);
      std::copy_n(c.shares + at * c.key, c.key, &share[i * wide]);
    }
  }
};

// The decay of some keys at one step.
template <bool keyed, typename T>
inline typename Vector<T>::type decay_at(const T* keep, int64_t j) {
  if constexpr (keyed) return load_vector(keep + j);
  return typename Vector<T>::type{} + keep[0];
}

// What each of `many` rows holds of a key.
template <int many, typename T>
inline void hold_rows(const T* rows, const T* key, int64_t wide, T* held) {
  typename Vector<T>::type sums[many] = {};
  for (int64_t j = 0; j < wide; j += Vector<T>::lanes)
    for (int k = 0; k < many; ++k) sums[k] += load_vector(rows + k * wide + j) * load_vector(key + j);
  sum_each<many>(sums, held);
}

// Takes `many` rows from the first one on through a piece. `old` holds them before it; the state
// after step i goes to states + i * stride, so that a stride of 0 keeps the last alone.
template <Rule rule, bool keyed, int many, typename T>
void advance_matrix(MatrixPiece<T>& p, int64_t first, const T* old, T* states, int64_t stride) {
  using V = typename Vector<T>::type;
  const int64_t wide = p.wide;
  for (int64_t i = 0; i < p.count; ++i) {
    const T *before = i == 0 ? old : states + (i - 1) * stride, *keep = &p.keep[i * wide];
    const T *query = &p.query[i * wide], *key = &p.key[i * wide], *value = &p.value[i * p.rows + first];
    const T* share = rule == Rule::erase ? &p.share[i * wide] : nullptr;
    T *held = &p.held[i * p.rows + first], *written = &p.written[i * p.rows + first];
    T *after = states + i * stride, *read = &p.read[i * p.rows + first];
    const bool start = p.starts[i];
    if constexpr (rule != Rule::sum) {
      const T* asked = rule == Rule::delta ? key : &p.erased[i * wide];
      if (start)
        std::fill_n(held, many, T(0));
      else
        hold_rows<many>(before, asked, wide, held);
    }
    for (int k = 0; k < many; ++k)
      written[k] = rule == Rule::delta ? p.rate[i] * (value[k] - keep[0] * held[k]) : value[k];
    V sums[many] = {};
    for (int64_t j = 0; j < wide; j += Vector<T>::lanes) {
      const V kept = decay_at<keyed>(keep, j), plus = load_vector(key + j);
      const V asked = load_vector(query + j);
      for (int k = 0; k < many; ++k) {
        V x = written[k] * plus;
        if constexpr (rule == Rule::erase) x -= held[k] * load_vector(share + j);
        if (!start) x += kept * load_vector(before + k * wide + j);
        store_vector(after + k * wide + j, x);
        sums[k] += x * asked;
      }
    }
    sum_each<many>(sums, read);
  }
}

// The state of one head, from where it comes in to rows of whole vectors.
template <typename T>
void load_rows(const MatrixChunk<T>& c, int64_t n, int64_t h, const T* state, T* rows) {
  state += (n * c.heads + h) * c.value * c.key;
  for (int64_t v = 0; v < c.value; ++v) std::copy_n(state + v * c.key, c.key, rows + v * c.wide());
}

// And back.
template <typename T>
void store_rows(const MatrixChunk<T>& c, int64_t n, int64_t h, const T* rows, T* state) {
  state += (n * c.heads + h) * c.value * c.key;
  for (int64_t v = 0; v < c.value; ++v) std::copy_n(rows + v * c.wide(), c.key, state + v * c.key);
}

// A whole piece of one head, in place.
template <Rule rule, bool keyed, typename T>
void advance_piece(MatrixPiece<T>& p, T* state) {
  each_group<kMatrixRows>(p.rows, [&](int64_t v, auto many) {
    T* rows = state + v * p.wide;
    advance_matrix<rule, keyed, many.value>(p, v, rows, rows, 0);
  });
}

template <Rule rule, bool keyed, typename T>
void matrix_forward(const MatrixChunk<T>& c, int64_t n, int64_t h, T* outputs, T* last) {
  Room<T> state(c.value * c.wide());
  MatrixPiece<T> p(c);
  load_rows(c, n, h, c.state, state.data());
  for (int64_t piece = 0; piece * kPiece < c.time; ++piece) {
    p.enter(c, n, h, piece);
    advance_piece<rule, keyed>(p, state.data());
    for (int64_t i = 0; i < p.count; ++i)
      std::copy_n(&p.read[i * p.rows], p.rows, outputs + c.at(n, p.begin + i, h) * c.value);
  }
  store_rows(c, n, h, state.data(), last);
}

}  // namespace clew

#endif  // CLEW_MATRIX_H_
