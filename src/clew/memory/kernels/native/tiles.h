// Products of small matrices whose sums stay in registers; what is held is padded such that every
// tile is whole.
#ifndef CLEW_TILES_H_
#define CLEW_TILES_H_

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "room.h"

namespace clew {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64, kTileRows = 8;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32, kTileRows = 4;
#else
constexpr int kVectorBytes = 16, kTileRows = 4;
#endif

template <typename T>
struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  static constexpr int64_t lanes = kVectorBytes / sizeof(T);
};

template <typename T>
inline typename Vector<T>::type load_vector(const T* from) {
  typename Vector<T>::type v;
  std::memcpy(&v, from, sizeof(v));
  return v;
}

template <typename T>
inline void store_vector(T* to, typename Vector<T>::type v) {
  std::memcpy(to, &v, sizeof(v));
}

template <typename T>
inline T sum_lanes(typename Vector<T>::type v) {
  T each[Vector<T>::lanes], sum = 0;
  store_vector(each, v);
  for (int64_t k = 0; k < Vector<T>::lanes; ++k) sum += each[k];
  return sum;
}

#if defined(__AVX512F__)
// Halves first: one number after the other would wait for each addition.
template <>
inline float sum_lanes<float>(Vector<float>::type v) {
  return _mm512_reduce_add_ps((__m512)v);
}
#endif

// The sum of each of `many` vectors.
template <int many, typename T>
inline void sum_each(const typename Vector<T>::type* v, T* out) {
  int k = 0;
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<T, float>) {  // four at once
    for (; k + 4 <= many; k += 4) {
      __m256 half[4];
      for (int r = 0; r < 4; ++r) {
        const __m512 whole = (__m512)v[k + r];
        const __m512 other = _mm512_shuffle_f32x4(whole, whole, 0x4e);
        half[r] = _mm512_castps512_ps256(_mm512_add_ps(whole, other));
      }
      const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(half[0], half[1]),
                                         _mm256_hadd_ps(half[2], half[3]));
      const __m128 all = _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
      _mm_storeu_ps(out + k, all);
    }
  }
#endif
  for (; k < many; ++k) out[k] = sum_lanes<T>(v[k]);
}

// The next multiple of `step`.
inline int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// Columns of a tile, two vectors; rows of everything that tiles run over are padded to this.
template <typename T>
constexpr int64_t tile_columns() {
  return 2 * Vector<T>::lanes;
}

// out[i][j] (+)= sum_k a(i, k) b[k][j] for whole tiles: `rows` a multiple of kTileRows, `columns`
// one of tile_columns. `a(i, k)` stands at a + i * row_step + k * sum_step.
template <bool add, typename T>
void multiply(int64_t rows, int64_t columns, int64_t sums, const T* a, int64_t row_step,
              int64_t sum_step, const T* b, int64_t b_step, T* out, int64_t out_step) {
  using V = typename Vector<T>::type;
  constexpr int64_t lanes = Vector<T>::lanes;
  for (int64_t j = 0; j < columns; j += 2 * lanes) {
    for (int64_t i = 0; i < rows; i += kTileRows) {
      V left[kTileRows], right[kTileRows];
      for (int r = 0; r < kTileRows; ++r) {
        T* at = out + (i + r) * out_step + j;
        left[r] = add ? load_vector(at) : V{};
        right[r] = add ? load_vector(at + lanes) : V{};
      }
      const T* a_i = a + i * row_step;
      for (int64_t k = 0; k < sums; ++k) {
        const V b_left = load_vector(b + k * b_step + j);
        const V b_right = load_vector(b + k * b_step + j + lanes);
        for (int r = 0; r < kTileRows; ++r) {
          const T x = a_i[r * row_step + k * sum_step];
          left[r] += x * b_left;
          right[r] += x * b_right;
        }
      }
      for (int r = 0; r < kTileRows; ++r) {
        T* at = out + (i + r) * out_step + j;
        store_vector(at, left[r]);
        store_vector(at + lanes, right[r]);
      }
    }
  }
}

}  // namespace clew

#endif  // CLEW_TILES_H_
