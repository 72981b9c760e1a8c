// Attention from one query to a ring of keys and values, for one head; `window.py` has the
// equations. Every key and value in sight is read once, where it lies.
#ifndef CLEW_WINDOW_STEP_H_
#define CLEW_WINDOW_STEP_H_

#include "window.h"

namespace clew {

// The query is [heads, head], the ring and the distances [heads, slots, head] (no distances: far
// is 0), biases [heads, head]; `at` is the newest slot, `length` how many slots are seen.
template <typename T>
struct RingStep {
  int64_t heads, head, slots, far;
  Shared<T> query, keys, values, distances, content, distant;
  Shared<int32_t> at, length;

  int64_t slot(int64_t n, int64_t distance) const {
    const int64_t from = *at.at(n) - distance;
    return from < 0 ? from + slots : from;
  }
};

constexpr int kTogether = 4;  // rows that are read side by side
constexpr int kAhead = 16;    // rows that are fetched before they are read

// sums[r] += a . rows[r]
template <typename T>
void add_products(const T* a, const T* const* rows, int64_t size, T* sums) {
  using V = typename Vector<T>::type;
  constexpr int64_t lanes = Vector<T>::lanes;
  V collected[kTogether] = {};
  int64_t d = 0;
  for (; d + lanes <= size; d += lanes)
    for (int r = 0; r < kTogether; ++r)
      collected[r] += load_vector(a + d) * load_vector(rows[r] + d);
  for (int r = 0; r < kTogether; ++r) {
    T each[lanes];
    store_vector(each, collected[r]);
    for (int64_t k = 0; k < lanes; ++k) sums[r] += each[k];
    for (int64_t k = d; k < size; ++k) sums[r] += a[k] * rows[r][k];
  }
}

// The rows of one head's ring at some distances, the last one again where there are no more. Those
// a few distances on are brought near meanwhile: a ring is read from its newest slot backwards.
template <typename T>
void find_rows(const RingStep<T>& s, int64_t n, const T* ring, int64_t distance, int64_t length,
               const T** rows) {
  for (int r = 0; r < kTogether; ++r) {
    rows[r] = ring + s.slot(n, std::min(distance + r, length - 1)) * s.head;
    const T* ahead = ring + s.slot(n, std::min(distance + r + kAhead, length - 1)) * s.head;
    for (int64_t d = 0; d < s.head; d += 64 / sizeof(T)) __builtin_prefetch(ahead + d);
  }
}

template <typename T>
void ring_step(const RingStep<T>& s, int64_t n, int64_t h, T* outputs) {
  const int64_t length = *s.length.at(n), padded = round_up(length, kTogether);
  std::vector<T>& room = scratch<T>(0);
  const int64_t total = padded + 2 * s.head;
  if (static_cast<int64_t>(room.size()) < total) room.resize(total);
  T *weights = room.data(), *content = weights + padded, *distant = content + s.head;
  const T *q = s.query.at(n) + h * s.head, *u = s.content.at(n) + h * s.head;
  const T *v = s.distant.at(n) + h * s.head, scale = T(1) / std::sqrt(T(s.head));
  for (int64_t d = 0; d < s.head; ++d) {
    content[d] = (q[d] + u[d]) * scale;
    distant[d] = (q[d] + v[d]) * scale;
  }
  const int64_t ring = h * s.slots * s.head;
  const T* rows[kTogether];
  std::fill_n(weights, padded, T(0));
  for (int64_t b = 0; b < length; b += kTogether) {
    find_rows(s, n, s.keys.at(n) + ring, b, length, rows);
    add_products(content, rows, s.head, weights + b);
    if (s.far == 0) continue;
    const T* far = s.distances.at(n) + h * s.far * s.head;
    for (int r = 0; r < kTogether; ++r) rows[r] = far + std::min(b + r, length - 1) * s.head;
    add_products(distant, rows, s.head, weights + b);
  }
  softmax(weights, weights + length);
  std::fill(weights + length, weights + padded, T(0));
  T* output = outputs + (n * s.heads + h) * s.head;
  std::fill_n(output, s.head, T(0));
  for (int64_t b = 0; b < length; b += kTogether) {
    find_rows(s, n, s.values.at(n) + ring, b, length, rows);
    const T* weight = weights + b;
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < s.head; ++d)
      output[d] += (weight[0] * rows[0][d] + weight[1] * rows[1][d]) +
                   (weight[2] * rows[2][d] + weight[3] * rows[3][d]);
  }
}

}  // namespace clew

#endif  // CLEW_WINDOW_STEP_H_
