// Attention over a window of the past for one head, forward; `window.py` has the equations. The
// scores of a block of queries stay in the processor's caches, and only keys that one of them may
// see are multiplied at all.
#ifndef CLEW_WINDOW_H_
#define CLEW_WINDOW_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "batch.h"
#include "numbers.h"
#include "tiles.h"

namespace clew {

constexpr int64_t kQueries = 32;  // of a block

// queries, keys and values are [time, heads, head], the ring's [heads, slots, head], distances
// [heads, far, head] or empty, biases [heads, head], counts [time], position and length numbers.
template <typename T>
struct Window {
  int64_t time, heads, head, slots, far;
  Shared<T> queries, keys, values, old_keys, old_values, distances, content, distant;
  Shared<int32_t> position, length, counts;
  T scale() const { return T(1) / std::sqrt(T(head)); }
};

// One head of one chunk, brought together: the ring's rows from the oldest on and the chunk's
// behind them. Rows have `wide` numbers, of which `head` are used; what is turned has `long_rows`.
template <typename T>
struct Head {
  const Window<T>& w;
  int64_t n, h, past, rows, wide, long_rows, reach;
  Room<T>& room;
  T *keys, *turned_keys, *values, *turned_values, *far, *turned_far;
  T *content, *distant, *weights, *scores, *shifted;
  std::vector<int32_t> spoiled;  // how many rows before this one were not finite
  int64_t long_far, span;

  Head(const Window<T>& window, int64_t n, int64_t h, Room<T>& room)
      : w(window), n(n), h(h), room(room) {
    past = std::min<int64_t>(*w.length.at(n), w.slots - 1);
    rows = past + w.time;
    wide = round_up(w.head, tile_columns<T>());
    int64_t most = 1;
    for (int64_t t = 0; t < w.time; ++t) most = std::max<int64_t>(most, w.counts.at(n)[t]);
    reach = w.far == 0 ? 0 : most;
    span = round_up(most + kQueries - 1, std::max<int64_t>(tile_columns<T>(), kTileRows));
    // A block may begin at any row and runs over its whole span.
    long_rows = spread(rows + span);
    long_far = reach == 0 ? 0 : spread(reach + span);
    const int64_t held[] = {long_rows * wide, long_rows * wide, long_rows * wide,
                            long_rows * wide, long_far * wide,  long_far * wide,
                            kQueries * wide,  kQueries * wide,  kQueries * span,
                            kQueries * span,  kQueries * span};
    T** places[] = {&keys, &turned_keys, &values,  &turned_values, &far,    &turned_far,
                    &content, &distant,  &weights, &scores,        &shifted};
    int64_t total = 0;
    for (int64_t size : held) total += size;
    if (static_cast<int64_t>(room.size()) < total) room.resize(total);
    std::fill_n(room.data(), total, T(0));
    T* at = room.data();
    for (int i = 0; i < 11; ++i) {
      *places[i] = at;
      at += held[i];
    }
    gather();
  }

  // Lines a page apart would fall on the same places of a cache.
  static int64_t spread(int64_t n) {
    return n * sizeof(T) % 4096 == 0 ? n + tile_columns<T>() : n;
  }

  // The ring's slot of a past row; the newest is the one before `position`.
  int64_t slot(int64_t row) const {
    const int64_t at = (*w.position.at(n) - past + row) % w.slots;
    return at < 0 ? at + w.slots : at;
  }

  const T* row_of(const Shared<T>& ring, const Shared<T>& chunk, int64_t row) const {
    if (row < past) return ring.at(n) + (h * w.slots + slot(row)) * w.head;
    return chunk.at(n) + ((row - past) * w.heads + h) * w.head;
  }

  // Numbers that are not finite become 0: a key that is not seen has weight 0, and 0 times NaN is
  // NaN. Who does see one is told by `spoiled`.
  void gather() {
    spoiled.assign(rows + 1, 0);
    for (int64_t j = 0; j < rows; ++j) {
      const T *key = row_of(w.old_keys, w.keys, j), *value = row_of(w.old_values, w.values, j);
      bool fine = true;
      for (int64_t d = 0; d < w.head; ++d) {
        const bool both = std::isfinite(key[d]) && std::isfinite(value[d]);
        fine = fine && both;
        keys[j * wide + d] = std::isfinite(key[d]) ? key[d] : T(0);
        values[j * wide + d] = std::isfinite(value[d]) ? value[d] : T(0);
      }
      spoiled[j + 1] = spoiled[j] + !fine;
    }
    turn(keys, rows, turned_keys, long_rows);
    // Distances from the farthest to 0, so that they run like the keys.
    const T* from = reach == 0 ? nullptr : w.distances.at(n) + h * w.far * w.head;
    for (int64_t c = 0; c < reach; ++c)
      std::copy_n(from + (reach - 1 - c) * w.head, w.head, far + c * wide);
    turn(far, reach, turned_far, long_far);
  }

  void turn(const T* from, int64_t count, T* to, int64_t step) const {
    for (int64_t j = 0; j < count; ++j)
      for (int64_t d = 0; d < w.head; ++d) to[d * step + j] = from[j * wide + d];
  }
};

template <typename T>
T largest(const T* start, const T* end) {
  constexpr int64_t lanes = Vector<T>::lanes;
  T mosts[lanes];
  std::fill_n(mosts, lanes, -std::numeric_limits<T>::infinity());
  for (; start + lanes <= end; start += lanes)
    for (int64_t k = 0; k < lanes; ++k) mosts[k] = start[k] > mosts[k] ? start[k] : mosts[k];
  for (; start < end; ++start) mosts[0] = *start > mosts[0] ? *start : mosts[0];
  return *std::max_element(mosts, mosts + lanes);
}

// softmax of the numbers from start to end, in place.
template <typename T>
void softmax(T* start, T* end) {
  T sum = 0;
  const T most = largest<T>(start, end);
  CLEW_INDEPENDENT
  for (T* x = start; x < end; ++x) *x = exponential(*x - most);
  for (const T* x = start; x < end; ++x) sum += *x;
  const T share = T(1) / sum;
  CLEW_INDEPENDENT
  for (T* x = start; x < end; ++x) *x *= share;
}

// Some queries of a head: which rows they see, and with what weights.
template <typename T>
struct Block {
  const Head<T>& head;
  int64_t begin, count, first, columns;

  Block(const Head<T>& head, int64_t begin) : head(head), begin(begin) {
    const Window<T>& w = head.w;
    count = std::min(kQueries, w.time - begin);
    first = head.rows;
    for (int64_t i = 0; i < count; ++i) first = std::min(first, last(i) - seen(i) + 1);
    columns = round_up(last(count - 1) - first + 1, tile_columns<T>());
  }

  int64_t seen(int64_t i) const { return head.w.counts.at(head.n)[begin + i]; }
  int64_t last(int64_t i) const { return head.past + begin + i; }  // the row of a query itself
  int64_t padded() const { return round_up(count, kTileRows); }
  // Where in the distances the first column of query i stands; below 0 it is too far away.
  int64_t far_from(int64_t i) const { return head.reach - 1 - (last(i) - first); }

  // softmax_j (content_i . key_j + distant_i . far_ij), zeros where i does not see j.
  void weigh() const {
    const Window<T>& w = head.w;
    const T *u = w.content.at(head.n) + head.h * w.head, *v = w.distant.at(head.n) + head.h * w.head;
    for (int64_t i = 0; i < count; ++i) {
      const T* q = w.queries.at(head.n) + ((begin + i) * w.heads + head.h) * w.head;
      CLEW_INDEPENDENT
      for (int64_t d = 0; d < w.head; ++d) {
        head.content[i * head.wide + d] = (q[d] + u[d]) * w.scale();
        head.distant[i * head.wide + d] = (q[d] + v[d]) * w.scale();
      }
    }
    multiply<false>(padded(), columns, w.head, head.content, head.wide, 1,
                    head.turned_keys + first, head.long_rows, head.weights, head.span);
    const int64_t from = far_begin();
    if (head.reach > 0)
      multiply<false>(padded(), far_columns(), w.head, head.distant, head.wide, 1,
                      head.turned_far + from, head.long_far, head.scores, head.span);
    for (int64_t i = 0; i < count; ++i) {
      T *row = head.weights + i * head.span, *end = row + last(i) - first + 1;
      T* start = end - seen(i);
      if (head.reach > 0) {
        const T* score = head.scores + i * head.span + far_from(i) - from;
        CLEW_INDEPENDENT
        for (T* x = start; x < end; ++x) *x += score[x - row];
      }
      softmax(start, end);
      std::fill(row, start, T(0));
      std::fill(end, row + columns, T(0));
    }
  }

  // The distances that any query of the block needs end at the nearest one, and begin here.
  int64_t far_begin() const {
    int64_t most = 0;
    for (int64_t i = 0; i < count; ++i) most = std::max(most, seen(i));
    return head.reach - most;
  }
  int64_t far_columns() const {
    return round_up(head.reach - far_begin(), tile_columns<T>());
  }

  bool is_spoiled(int64_t i) const {
    return head.spoiled[last(i) + 1] != head.spoiled[last(i) + 1 - seen(i)];
  }
};

// Scratch space that a thread keeps, because fresh memory costs more than it is used here.
template <typename T>
Room<T>& scratch(int which) {
  thread_local Room<T> rooms[2];
  return rooms[which];
}

// outputs [n, time, heads, head].
template <typename T>
void window_forward(const Window<T>& w, int64_t n, int64_t h, T* outputs) {
  const Head<T> head(w, n, h, scratch<T>(0));
  for (int64_t begin = 0; begin < w.time; begin += kQueries) {
    const Block<T> block(head, begin);
    block.weigh();
    multiply<false>(block.padded(), head.wide, block.columns, head.weights, head.span, 1,
                    head.values + block.first * head.wide, head.wide, head.content, head.wide);
    for (int64_t i = 0; i < block.count; ++i) {
      T* output = outputs + ((n * w.time + begin + i) * w.heads + h) * w.head;
      std::copy_n(head.content + i * head.wide, w.head, output);
      if (block.is_spoiled(i))
        std::fill_n(output, w.head, std::numeric_limits<T>::quiet_NaN());
    }
  }
}

}  // namespace clew

#endif  // CLEW_WINDOW_H_
