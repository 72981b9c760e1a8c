// The learned feature maps and gates of ReLiT and AReLiT for one head at one step, and their
// gradients. The Python form is `GatedFeatures`; the letters are those of Pramanik (2023).
#ifndef CLEW_FEATURES_H_
#define CLEW_FEATURES_H_

#include <cstdint>

#include "groups.h"
#include "numbers.h"
#include "room.h"

namespace clew {

// Where the numbers of a chunk stand: products [n, time, 5, heads, head] in the order key, query,
// value, beta, gamma, and maps [n, time, 3, heads, eta] in the order key, query, gamma; all before
// their relu or sigmoid.
struct Sizes {
  int64_t n, time, heads, head, eta;
  int64_t wide() const { return eta * head; }
  int64_t step_products() const { return 5 * heads * head; }
  int64_t step_maps() const { return 3 * heads * eta; }
};

// Brings one head's products of a step near, as the next but one will need them: steps stand far
// apart, which no processor foresees. With write = 1 as something to be written.
template <int write, typename T>
inline void fetch(const Sizes& s, const T* products) {
  for (int part = 0; part < 5; ++part)
    for (int64_t d = 0; d < s.head; d += 64 / sizeof(T))
      __builtin_prefetch(products + part * s.heads * s.head + d, write);
}

// What one step of one head works with; `keep`, `add` and `query` range over eta x head.
template <typename T>
struct Features {
  const T *value;
  T *key, *beta, *gamma, *plain_query, *key_map, *query_map, *gamma_map, *keep, *add, *query;

  static int64_t size(const Sizes& s) { return 4 * s.head + 3 * s.eta + 3 * s.wide(); }

  // Lays the arrays out in `room`.
  explicit Features(const Sizes& s, T* room) {
    key = room;
    beta = key + s.head;
    gamma = beta + s.head;
    plain_query = gamma + s.head;
    key_map = plain_query + s.head;
    query_map = key_map + s.eta;
    gamma_map = query_map + s.eta;
    keep = gamma_map + s.eta;
    add = keep + s.wide();
    query = add + s.wide();
  }

  // gamma = sigmoid (x) sigmoid, keep = 1 - gamma, add = gamma * (relu (x) relu), and the query.
  void read(const Sizes& s, const T* products, const T* maps) {
    const int64_t stride = s.heads * s.head, map_stride = s.heads * s.eta;
    value = products + 2 * stride;
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < s.head; ++d) {
      key[d] = relu(products[d]);
      plain_query[d] = relu(products[stride + d]);
      beta[d] = sigmoid(products[3 * stride + d]);
      gamma[d] = sigmoid(products[4 * stride + d]);
    }
    for (int64_t e = 0; e < s.eta; ++e) {
      key_map[e] = relu(maps[e]);
      query_map[e] = relu(maps[map_stride + e]);
      gamma_map[e] = sigmoid(maps[2 * map_stride + e]);
    }
    for (int64_t e = 0; e < s.eta; ++e) {
      T *keep_e = keep + e * s.head, *add_e = add + e * s.head, *query_e = query + e * s.head;
      const T of_key = key_map[e], of_query = query_map[e], of_gamma = gamma_map[e];
      CLEW_INDEPENDENT
      for (int64_t d = 0; d < s.head; ++d) {
        const T g = of_gamma * gamma[d];
        keep_e[d] = T(1) - g;
        add_e[d] = g * (of_key * key[d]);
        query_e[d] = of_query * plain_query[d];
      }
    }
  }
};

// The gradients of what `Features` computes, and what is collected of them during a step.
template <typename T>
struct FeatureGradients {
  T *keep, *add, *query, *value, *beta;
  Room<T> room, sums;

  explicit FeatureGradients(const Sizes& s) : room(3 * s.wide() + 2 * s.head), sums(3 * s.head) {
    keep = room.data();
    add = keep + s.wide();
    query = add + s.wide();
    value = query + s.wide();
    beta = value + s.head;
  }

  void clear() { std::fill(room.begin(), room.end(), T(0)); }

  // Through the outer products and the activations, into the places of the products and maps.
  void write(const Sizes& s, const Features<T>& f, T* products, T* maps) {
    const int64_t stride = s.heads * s.head, map_stride = s.heads * s.eta;
    T *of_key = sums.data(), *of_query = of_key + s.head, *of_gamma = of_query + s.head;
    std::fill(sums.begin(), sums.end(), T(0));
    for (int64_t e = 0; e < s.eta; ++e) {
      const T *keep_e = keep + e * s.head, *add_e = add + e * s.head, *query_e = query + e * s.head;
      const T key_map = f.key_map[e], query_map = f.query_map[e], gamma_map = f.gamma_map[e];
      T of_key_map = 0, of_query_map = 0, of_gamma_map = 0;
      CLEW_INDEPENDENT
      for (int64_t d = 0; d < s.head; ++d) {
        const T kk = key_map * f.key[d], g = gamma_map * f.gamma[d];
        const T of_g = add_e[d] * kk - keep_e[d], of_kk = add_e[d] * g;
        of_key[d] += of_kk * key_map;
        of_key_map += of_kk * f.key[d];
        of_gamma[d] += of_g * gamma_map;
        of_gamma_map += of_g * f.gamma[d];
        of_query[d] += query_e[d] * query_map;
        of_query_map += query_e[d] * f.plain_query[d];
      }
      maps[e] = key_map > T(0) ? of_key_map : T(0);
      maps[map_stride + e] = query_map > T(0) ? of_query_map : T(0);
      maps[2 * map_stride + e] = of_gamma_map * gamma_map * (T(1) - gamma_map);
    }
    CLEW_INDEPENDENT
    for (int64_t d = 0; d < s.head; ++d) {
      products[d] = f.key[d] > T(0) ? of_key[d] : T(0);
      products[stride + d] = f.plain_query[d] > T(0) ? of_query[d] : T(0);
      products[2 * stride + d] = value[d];
      products[3 * stride + d] = beta[d] * f.beta[d] * (T(1) - f.beta[d]);
      products[4 * stride + d] = of_gamma[d] * f.gamma[d] * (T(1) - f.gamma[d]);
    }
  }
};

}  // namespace clew

#endif  // CLEW_FEATURES_H_
