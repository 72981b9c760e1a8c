// The recurrent cells' kernels as XLA calls them.
#ifndef CLEW_CELLS_CALLS_H_
#define CLEW_CELLS_CALLS_H_

#include <map>

#include "calls.h"
#include "cells_chunk.h"

namespace clew {

// Shares out a batch to the pool's threads: calls run(panels, items, count) for at most kTileRows
// items that have one weight, which is laid out before, transposed or as it is. One weight for all
// is laid out by all threads together, others each by the thread that works with them.
template <typename T, typename Run>
void for_each_weight(ffi::ThreadPool& pool, const Shared<T>& weight, int64_t batch, int64_t rows,
                     int64_t columns, bool turned, const Run& run) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (int64_t n = 0; n < batch; ++n) groups[weight.index[n]].push_back(n);
  const int64_t row_step = turned ? 1 : columns, column_step = turned ? rows : 1;
  if (groups.size() == 1) {
    const std::vector<int64_t>& items = groups.begin()->second;
    const T* from = weight.at(items[0]);
    Panels<T> panels(rows, columns);
    for_each(pool, panels.count,
             [&](int64_t p) { panels.fill(from, row_step, column_step, p); });
    const int64_t threads = std::max<int64_t>(pool.num_threads(), 1);
    const int64_t most = std::min<int64_t>(kTileRows, (batch + threads - 1) / threads);
    const int64_t pieces = (batch + most - 1) / most, each = (batch + pieces - 1) / pieces;
    for_each(pool, (batch + each - 1) / each, [&](int64_t piece) {
      const int64_t first = piece * each;
      run(panels, items.data() + first, std::min(each, batch - first));
    });
    return;
  }
  std::vector<const std::vector<int64_t>*> lists;
  for (const auto& group : groups) lists.push_back(&group.second);
  for_each(pool, lists.size(), [&](int64_t group) {
    const std::vector<int64_t>& items = *lists[group];
    Panels<T> panels(rows, columns);
    for (int64_t p = 0; p < panels.count; ++p)
      panels.fill(weight.at(items[0]), row_step, column_step, p);
    const int64_t all = items.size();
    for (int64_t first = 0; first < all; first += kTileRows)
      run(panels, items.data() + first, std::min<int64_t>(kTileRows, all - first));
  });
}

template <ffi::DataType type, typename T = ffi::NativeType<type>>
CellChunk<T> share_chunk(Batch& batch, In<type> weight, In<type> offset, In<type> state,
                         In<type> joint, In<type> apart, Flags starts) {
  const auto p = joint.dimensions(), s = state.dimensions();
  CellChunk<T> c;
  c.time = p[p.size() - 2];
  c.size = s[s.size() - 1];
  c.weight = batch.share<T>(weight, 2);
  c.offset = batch.share<T>(offset, 1);
  c.state = batch.share<T>(state, 2);
  c.joint = batch.share<T>(joint, 2);
  c.apart = batch.share<T>(apart, 2);
  c.starts = batch.share<bool>(starts, 1);
  return c;
}

template <template <typename> class Cell, ffi::DataType type>
ffi::Error cells_forward_call(ffi::ThreadPool pool, In<type> weight, In<type> offset,
                              In<type> state, In<type> joint, In<type> apart, Flags starts,
                              In<type> bias, Out<type> outputs, Out<type> last, Out<type> open_joint,
                              Out<type> open_apart, Out<type> kept) {
  using T = ffi::NativeType<type>;
  Batch batch(outputs->dimensions(), 2);
  const auto c = share_chunk<type>(batch, weight, offset, state, joint, apart, starts);
  const CellOutputs<T> out{batch.share<T>(bias, 1),   outputs->typed_data(),
                           last->typed_data(),        open_joint->typed_data(),
                           open_apart->typed_data(),  kept->typed_data()};
  for_each_weight(pool, c.weight, batch.count, c.size, Cell<T>::gates * c.size, false,
                  [&](const Panels<T>& panels, const int64_t* items, int64_t count) {
                    cells_forward<Cell>(c, panels, items, count, out);
                  });
  return ffi::Error::Success();
}

template <template <typename> class Cell, ffi::DataType type>
ffi::Error cells_backward_call(ffi::ThreadPool pool, In<type> weight, In<type> offset,
                               In<type> state, In<type> joint, In<type> apart, Flags starts,
                               In<type> outputs, In<type> kept, In<type> of_outputs,
                               In<type> of_last, Out<type> of_joint, Out<type> of_apart,
                               Out<type> of_inner, Out<type> of_state) {
  using T = ffi::NativeType<type>;
  Batch batch(of_joint->dimensions(), 2);
  const auto c = share_chunk<type>(batch, weight, offset, state, joint, apart, starts);
  const CellGradients<T> g{batch.share<T>(outputs, 2),
                           batch.share<T>(kept, 2),
                           batch.share<T>(of_outputs, 2),
                           batch.share<T>(of_last, 2),
                           of_joint->typed_data(),
                           of_apart->typed_data(),
                           of_inner->typed_data(),
                           of_state->typed_data()};
  for_each_weight(pool, c.weight, batch.count, Cell<T>::gates * c.size, c.size, true,
                  [&](const Panels<T>& panels, const int64_t* items, int64_t count) {
                    cells_backward<Cell>(c, panels, items, count, g);
                  });
  return ffi::Error::Success();
}

// Their names for the table of kernels.
template <ffi::DataType type>
constexpr auto lstm_forward_call = cells_forward_call<LSTMCell, type>;
template <ffi::DataType type>
constexpr auto lstm_backward_call = cells_backward_call<LSTMCell, type>;
template <ffi::DataType type>
constexpr auto gru_forward_call = cells_forward_call<GRUCell, type>;
template <ffi::DataType type>
constexpr auto gru_backward_call = cells_backward_call<GRUCell, type>;
}  // namespace clew

#endif  // CLEW_CELLS_CALLS_H_
