// Products of one vector with many rows that lie behind each other, and sums of such rows.
#ifndef CLEW_ROWS_H_
#define CLEW_ROWS_H_

#include "tiles.h"

namespace clew {

constexpr int kTogether = 4;  // rows that are read side by side

// out[i] += a . row i, for `count` rows `step` apart.
template <typename T>
void add_products(const T* a, const T* rows, int64_t count, int64_t step, int64_t size, T* out) {
  using V = typename Vector<T>::type;
  constexpr int64_t lanes = Vector<T>::lanes;
  int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    const T* row = rows + i * step;
    V sums[kTogether] = {};
    int64_t d = 0;
    for (; d + lanes <= size; d += lanes) {
      const V x = load_vector(a + d);
      for (int r = 0; r < kTogether; ++r) sums[r] += x * load_vector(row + r * step + d);
    }
    T each[kTogether];
    sum_each<kTogether>(sums, each);
    for (int r = 0; r < kTogether; ++r) out[i + r] += each[r];
    for (; d < size; ++d)
      for (int r = 0; r < kTogether; ++r) out[i + r] += a[d] * row[r * step + d];
  }
  for (; i < count; ++i) {
    T sum = 0;
    for (int64_t d = 0; d < size; ++d) sum += a[d] * rows[i * step + d];
    out[i] += sum;
  }
}

// out[d] += sum_i weight[i] row_i[d] for so many vectors d; two sums each, as an addition must
// wait for the one before it.
template <int vectors, typename T>
inline void add_rows_at(const T* weights, const T* rows, int64_t count, int64_t step, T* out) {
  using V = typename Vector<T>::type;
  constexpr int64_t lanes = Vector<T>::lanes;
  V even[vectors] = {}, odd[vectors] = {};
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    const T* row = rows + i * step;
    for (int v = 0; v < vectors; ++v) {
      even[v] += weights[i] * load_vector(row + v * lanes);
      odd[v] += weights[i + 1] * load_vector(row + step + v * lanes);
    }
  }
  if (i < count)
    for (int v = 0; v < vectors; ++v) even[v] += weights[i] * load_vector(rows + i * step + v * lanes);
  for (int v = 0; v < vectors; ++v)
    store_vector(out + v * lanes, load_vector(out + v * lanes) + (even[v] + odd[v]));
}

template <typename T>
void add_rows(const T* weights, const T* rows, int64_t count, int64_t step, int64_t size, T* out) {
  constexpr int64_t lanes = Vector<T>::lanes;
  int64_t d = 0;
  for (; d + 4 * lanes <= size; d += 4 * lanes) add_rows_at<4>(weights, rows + d, count, step, out + d);
  for (; d + lanes <= size; d += lanes) add_rows_at<1>(weights, rows + d, count, step, out + d);
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = d; k < size; ++k) out[k] += weights[i] * rows[i * step + k];
}

}  // namespace clew

#endif  // CLEW_ROWS_H_
