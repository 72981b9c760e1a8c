// The windows' kernels as XLA calls them.
#ifndef CLEW_WINDOW_CALLS_H_
#define CLEW_WINDOW_CALLS_H_

#include "batch.h"
#include "calls.h"
#include "window_backward.h"
#include "window_step.h"

namespace clew {

template <ffi::DataType type, typename T = ffi::NativeType<type>>
struct WindowArguments {
  Batch batch;
  Window<T> window;

  template <typename Result>
  WindowArguments(const Result& result, In<type> queries, In<type> keys, In<type> values,
                  In<type> old_keys, In<type> old_values, Integers position, Integers length,
                  Integers counts, In<type> distances, In<type> content, In<type> distant)
      : batch(result.dimensions(), 3) {
    const auto q = queries.dimensions(), ring = old_keys.dimensions();
    const auto far = distances.dimensions();
    window.time = q[q.size() - 3];
    window.heads = q[q.size() - 2];
    window.head = q[q.size() - 1];
    window.slots = ring[ring.size() - 2];
    window.far = far[far.size() - 2];
    window.queries = batch.share<T>(queries, 3);
    window.keys = batch.share<T>(keys, 3);
    window.values = batch.share<T>(values, 3);
    window.old_keys = batch.share<T>(old_keys, 3);
    window.old_values = batch.share<T>(old_values, 3);
    window.position = batch.share<int32_t>(position, 0);
    window.length = batch.share<int32_t>(length, 0);
    window.counts = batch.share<int32_t>(counts, 1);
    window.distances = batch.share<T>(distances, 3);
    window.content = batch.share<T>(content, 2);
    window.distant = batch.share<T>(distant, 2);
  }
};

template <ffi::DataType type>
ffi::Error window_forward_call(ffi::ThreadPool pool, In<type> queries, In<type> keys,
                               In<type> values, In<type> old_keys, In<type> old_values,
                               Integers position, Integers length, Integers counts,
                               In<type> distances, In<type> content, In<type> distant,
                               Out<type> outputs) {
  const WindowArguments<type> a(*outputs, queries, keys, values, old_keys, old_values, position,
                                length, counts, distances, content, distant);
  for_each_head(pool, a.batch.count, a.window.heads, [&](int64_t n, int64_t h) {
    window_forward(a.window, n, h, outputs->typed_data());
  });
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error window_backward_call(ffi::ThreadPool pool, In<type> queries, In<type> keys,
                                In<type> values, In<type> old_keys, In<type> old_values,
                                Integers position, Integers length, Integers counts,
                                In<type> distances, In<type> content, In<type> distant,
                                In<type> of_outputs, Out<type> of_queries, Out<type> of_keys,
                                Out<type> of_values, Out<type> of_old_keys,
                                Out<type> of_old_values, Out<type> of_distances,
                                Out<type> of_content, Out<type> of_distant) {
  using T = ffi::NativeType<type>;
  WindowArguments<type> a(*of_queries, queries, keys, values, old_keys, old_values, position,
                          length, counts, distances, content, distant);
  const WindowGradients<T> g{a.batch.template share<T>(of_outputs, 3),
                             of_queries->typed_data(), of_keys->typed_data(),
                             of_values->typed_data(), of_old_keys->typed_data(),
                             of_old_values->typed_data(), of_distances->typed_data(),
                             of_content->typed_data(), of_distant->typed_data()};
  for_each_head(pool, a.batch.count, a.window.heads, [&](int64_t n, int64_t h) { window_backward(a.window, g, n, h); });
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error window_step_call(ffi::ThreadPool pool, In<type> query, In<type> keys, In<type> values,
                            Integers at, Integers length, In<type> distances, In<type> content,
                            In<type> distant, Out<type> outputs) {
  using T = ffi::NativeType<type>;
  Batch batch(outputs->dimensions(), 2);
  const auto ring = keys.dimensions(), far = distances.dimensions();
  RingStep<T> s;
  s.heads = ring[ring.size() - 3];
  s.slots = ring[ring.size() - 2];
  s.head = ring[ring.size() - 1];
  s.far = far[far.size() - 3];
  s.query = batch.share<T>(query, 2);
  s.keys = batch.share<T>(keys, 3);
  s.values = batch.share<T>(values, 3);
  s.at = batch.share<int32_t>(at, 0);
  s.length = batch.share<int32_t>(length, 0);
  s.distances = batch.share<T>(distances, 3);
  s.content = batch.share<T>(content, 2);
  s.distant = batch.share<T>(distant, 2);
  for_each_head(pool, batch.count, s.heads, [&](int64_t n, int64_t h) {
    ring_step(s, n, h, outputs->typed_data());
  });
  return ffi::Error::Success();
}

}  // namespace clew

#endif  // CLEW_WINDOW_CALLS_H_
