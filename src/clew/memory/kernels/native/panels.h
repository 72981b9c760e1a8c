// Products of a few rows with a large matrix that stays the same for many of them: the matrix is
// laid out once, in the order in which every product reads it.
#ifndef CLEW_PANELS_H_
#define CLEW_PANELS_H_

#include <algorithm>
#include <memory>

#include "tiles.h"

namespace clew {

constexpr int64_t kPanelVectors = 4;
constexpr int kSums = kTileRows == 8 ? 16 : 8;  // vectors that hold sums at the same time
constexpr int64_t kAhead = 8;  // rows of a panel that are asked for before they are read

// A matrix [rows, columns] as panels of `width` columns, each from the first row to the last; what
// lies beyond the last column is zero.
template <typename T>
struct Panels {
  static constexpr int64_t width = kPanelVectors * Vector<T>::lanes;
  int64_t rows, columns, count;
  std::unique_ptr<T[], void (*)(T*)> room;  // not set to zero first, as `Room` would be

  Panels(int64_t rows, int64_t columns)
      : rows(rows),
        columns(columns),
        count(round_up(columns, width) / width),
        room(LineAllocator<T>().allocate(rows * count * width),
             [](T* at) { LineAllocator<T>().deallocate(at, 0); }) {}

  int64_t padded() const { return count * width; }
  const T* at(int64_t panel) const { return room.get() + panel * rows * width; }

  // Lays out one panel of the matrix whose [i, j] stands at from + i * row_step + j * column_step.
  // Some rows at a time, so that either order of the source is read by whole cache lines.
  void fill(const T* from, int64_t row_step, int64_t column_step, int64_t panel) {
    constexpr int64_t together = 16;
    T* to = room.get() + panel * rows * width;
    const int64_t first = panel * width, used = std::min(width, columns - first);
    for (int64_t begin = 0; begin < rows; begin += together) {
      const int64_t end = std::min(begin + together, rows);
      if (used < width) std::fill(to + begin * width, to + end * width, T(0));
      if (column_step == 1) {
        for (int64_t i = begin; i < end; ++i)
          std::copy_n(from + i * row_step + first, used, to + i * width);
        continue;
      }
      for (int64_t j = 0; j < used; ++j)
        for (int64_t i = begin; i < end; ++i)
          to[i * width + j] = from[i * row_step + (first + j) * column_step];
    }
  }
};

template <int rows, int vectors, typename T>
inline void multiply_tile(const T* a, int64_t a_step, int64_t sums, const T* b, T* out,
                          int64_t out_step) {
  using V = typename Vector<T>::type;
  constexpr int64_t lanes = Vector<T>::lanes;
  V sum[rows][vectors] = {};
  for (int64_t k = 0; k < sums; ++k) {
    V right[vectors];
    for (int v = 0; v < vectors; ++v) {
      const T* at = b + k * Panels<T>::width + v * lanes;
      __builtin_prefetch(at + kAhead * Panels<T>::width);
      right[v] = load_vector(at);
    }
    for (int r = 0; r < rows; ++r) {
      const T x = a[r * a_step + k];
      for (int v = 0; v < vectors; ++v) sum[r][v] += x * right[v];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) store_vector(out + r * out_step + v * lanes, sum[r][v]);
}

// out [count, padded] = a [count, rows of b] b, for 1 to `most` rows a. A row's numbers do not
// depend on how many there are.
template <int most = kTileRows, typename T>
void multiply_panels(int64_t count, const T* a, int64_t a_step, const Panels<T>& b, T* out) {
  if constexpr (most > 1) {
    if (count < most) return multiply_panels<most - 1>(count, a, a_step, b, out);
  }
  constexpr int vectors = most * kPanelVectors <= kSums ? kPanelVectors : 2;
  constexpr int64_t columns = vectors * Vector<T>::lanes;
  for (int64_t panel = 0; panel < b.count; ++panel)
    for (int64_t j = 0; j < Panels<T>::width; j += columns)
      multiply_tile<most, vectors>(a, a_step, b.rows, b.at(panel) + j,
                                   out + panel * Panels<T>::width + j, b.padded());
}

}  // namespace clew

#endif  // CLEW_PANELS_H_
