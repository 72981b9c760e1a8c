// Attention from one query to a ring of keys and values, for one head; `window.py` has the
// equations. Every key and value in sight is read once, where it lies and in the order in which it
// lies there.
#ifndef CLEW_WINDOW_STEP_H_
#define CLEW_WINDOW_STEP_H_

#include "rows.h"
#include "window.h"

namespace clew {

// The query is [heads, head], the ring [heads, slots, head], the distances [far, heads, head] (none:
// far is 0), biases [heads, head]; `at` is the newest slot, `length` how many slots are seen.
template <typename T>
struct RingStep {
  int64_t heads, head, slots, far;
  Shared<T> query, keys, values, distances, content, distant;
  Shared<int32_t> at, length;
};

// The slots in sight: those up to the newest, and where the ring has come round those at its end.
struct InSight {
  int64_t at, length, begin, near, end, late;

  InSight(int64_t at, int64_t length, int64_t slots)
      : at(at),
        length(length),
        begin(std::max<int64_t>(at + 1 - length, 0)),
        near(at + 1 - begin),
        end(slots - (length - near)),
        late(length - near) {}

  // Calls work(slot, count, index) for the one or two runs of slots; `index` counts those in sight.
  template <typename Work>
  void each_run(const Work& work) const {
    work(begin, near, 0);
    if (late > 0) work(end, late, near);
  }

  // How far the index-th slot lies back; from one of a run to the next it is one less.
  int64_t distance(int64_t index) const {
    return index < near ? near - 1 - index : length - 1 - (index - near);
  }
};

template <typename T>
void ring_step(const RingStep<T>& s, int64_t n, int64_t h, T* outputs) {
  const InSight seen(*s.at.at(n), *s.length.at(n), s.slots);
  Room<T>& room = scratch<T>(0);
  const int64_t total = 2 * seen.length + 2 * s.head;
  if (static_cast<int64_t>(room.size()) < total) room.resize(total);
  T *weights = room.data(), *by_distance = weights + seen.length;
  T *content = by_distance + seen.length, *distant = content + s.head;
  const T *q = s.query.at(n) + h * s.head, *u = s.content.at(n) + h * s.head;
  const T *v = s.distant.at(n) + h * s.head, scale = T(1) / std::sqrt(T(s.head));
  for (int64_t d = 0; d < s.head; ++d) {
    content[d] = (q[d] + u[d]) * scale;
    distant[d] = (q[d] + v[d]) * scale;
  }
  const int64_t ring = h * s.slots * s.head;
  std::fill_n(weights, 2 * seen.length, T(0));
  if (s.far > 0)
    add_products(distant, s.distances.at(n) + h * s.head, seen.length, s.heads * s.head, s.head,
                 by_distance);
  const T *keys = s.keys.at(n) + ring, *values = s.values.at(n) + ring;
  seen.each_run([&](int64_t slot, int64_t count, int64_t index) {
    const T* nearest = by_distance + seen.distance(index + count - 1);
    for (int64_t i = 0; i < count; ++i) weights[index + i] = nearest[count - 1 - i];
    add_products(content, keys + slot * s.head, count, s.head, s.head, weights + index);
  });
  softmax(weights, weights + seen.length);
  T* output = outputs + (n * s.heads + h) * s.head;
  std::fill_n(output, s.head, T(0));
  seen.each_run([&](int64_t slot, int64_t count, int64_t index) {
    add_rows(weights + index, values + slot * s.head, count, s.head, s.head, output);
  });
}

}  // namespace clew

#endif  // CLEW_WINDOW_STEP_H_
