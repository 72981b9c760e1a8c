// ReLiT's recurrence for one head over a chunk, forward and backward; `relit.py` has the
// equations. Every row of C depends on no other, so that some rows at a time go through some steps,
// in the first cache. The normaliser is one more row. States are not stored: the backward pass
// keeps one of every `kPiece`, and runs from there again.
#ifndef CLEW_RELIT_H_
#define CLEW_RELIT_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "features.h"
#include "tiles.h"

namespace clew {

template <typename T>
struct ReLiT {
  Sizes sizes;
  bool joint;
  double epsilon;
  const T *products, *maps, *matrix, *normaliser;
  const bool* starts;

  int64_t rows() const { return sizes.head + 1; }
  int64_t state_size() const { return rows() * sizes.wide(); }
};

// Some steps of one head. A row v is kept by the factor from[v] + by[v] * keep, and what is added
// is added[v] * add; it reads read[v], its product with the query.
template <typename T>
struct Piece {
  int64_t begin, count, rows;
  Room<T> room, from, by, added, read;
  std::vector<Features<T>> steps;
  const bool* starts;

  explicit Piece(const ReLiT<T>& o)
      : rows(o.rows()),
        room(longest(o) * Features<T>::size(o.sizes)),
        from(longest(o) * rows),
        by(longest(o) * rows),
        added(longest(o) * rows),
        read(longest(o) * rows) {
    for (int64_t i = 0; i < longest(o); ++i)
      steps.emplace_back(o.sizes, room.data() + i * Features<T>::size(o.sizes));
  }

  static int64_t longest(const ReLiT<T>& o) { return std::min(kPiece, o.sizes.time); }

  void enter(const ReLiT<T>& o, int64_t n, int64_t h, int64_t piece) {
    const Sizes& s = o.sizes;
    begin = piece * kPiece;
    count = std::min(kPiece, s.time - begin);
    starts = o.starts + n * s.time + begin;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t t = n * s.time + begin + i;
      Features<T>& f = steps[i];
      f.read(s, o.products + t * s.step_products() + h * s.head,
             o.maps + t * s.step_maps() + h * s.eta);
      T *from_i = &from[i * rows], *by_i = &by[i * rows], *added_i = &added[i * rows];
      CLEW_INDEPENDENT
      for (int64_t v = 0; v < s.head; ++v) {
        from_i[v] = o.joint ? T(1) - f.beta[v] : T(0);
        by_i[v] = o.joint ? f.beta[v] : T(1) - f.beta[v];
        added_i[v] = f.beta[v] * f.value[v];
      }
      from_i[s.head] = T(0);
      by_i[s.head] = added_i[s.head] = T(1);
    }
  }
};

// Takes `many` rows from the first one on through a piece. `old` holds them before it; the state
// after step i goes to states + i * stride, so that a stride of 0 keeps the last alone. The vectors
// are said aloud, as compilers leave a loop with several sums as it is.
template <int many, typename T>
void advance_rows(Piece<T>& p, int64_t first, int64_t wide, const T* old, T* states,
                  int64_t stride) {
  for (int64_t i = 0; i < p.count; ++i) {
    const T *before = i == 0 ? old : states + (i - 1) * stride, *from = &p.from[i * p.rows + first];
    const T *by = &p.by[i * p.rows + first], *added = &p.added[i * p.rows + first];
    const T *keep = p.steps[i].keep, *add = p.steps[i].add, *query = p.steps[i].query;
    T* after = states + i * stride;
    using V = typename Vector<T>::type;
    V sums[many] = {};
    T rest[many] = {};
    const bool start = p.starts[i];
    int64_t j = 0;
    for (; j + Vector<T>::lanes <= wide; j += Vector<T>::lanes) {
      const V kept = load_vector(keep + j), plus = load_vector(add + j);
      const V asked = load_vector(query + j);
      for (int k = 0; k < many; ++k) {
        V x = added[k] * plus;
        if (!start) x += (from[k] + by[k] * kept) * load_vector(before + k * wide + j);
        store_vector(after + k * wide + j, x);
        sums[k] += x * asked;
      }
    }
    for (; j < wide; ++j) {
      for (int k = 0; k < many; ++k) {
        T x = added[k] * add[j];
        if (!start) x += (from[k] + by[k] * keep[j]) * before[k * wide + j];
        after[k * wide + j] = x;
        rest[k] += x * query[j];
      }
    }
    T* read = &p.read[i * p.rows + first];
    sum_each<many>(sums, read);
    for (int k = 0; k < many; ++k) read[k] += rest[k];
  }
}

template <typename T>
void load(const ReLiT<T>& o, int64_t n, int64_t h, const T* matrix, const T* normaliser, T* state) {
  const int64_t at = n * o.sizes.heads + h, wide = o.sizes.wide(), size = o.sizes.head * wide;
  std::copy_n(matrix + at * size, size, state);
  std::copy_n(normaliser + at * wide, wide, state + size);
}

// The state goes from where it came in to where it goes out, and is changed there.
template <typename T>
void relit_forward(const ReLiT<T>& o, int64_t n, int64_t h, T* outputs, T* matrix, T* normaliser) {
  const Sizes& s = o.sizes;
  const int64_t wide = s.wide(), rows = o.rows(), at = n * s.heads + h, size = s.head * wide;
  const T *old_matrix = o.matrix + at * size, *old_normaliser = o.normaliser + at * wide;
  matrix += at * size;
  normaliser += at * wide;
  Piece<T> p(o);
  for (int64_t piece = 0; piece * kPiece < s.time; ++piece) {
    p.enter(o, n, h, piece);
    each_group(s.head, [&](int64_t v, auto many) {
      advance_rows<many.value>(p, v, wide, old_matrix + v * wide, matrix + v * wide, 0);
    });
    advance_rows<1>(p, s.head, wide, old_normaliser, normaliser, 0);
    old_matrix = matrix;
    old_normaliser = normaliser;
    for (int64_t i = 0; i < p.count; ++i) {
      const T* read = &p.read[i * rows];
      T* output = outputs + ((n * s.time + p.begin + i) * s.heads + h) * s.head;
      const T below = read[s.head] + T(o.epsilon);
      for (int64_t v = 0; v < s.head; ++v) output[v] = read[v] / below;
    }
  }
}

}  // namespace clew

#endif  // CLEW_RELIT_H_
