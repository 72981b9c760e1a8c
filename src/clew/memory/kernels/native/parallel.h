// Independent pieces of work shared out to XLA's own threads.
#ifndef CLEW_PARALLEL_H_
#define CLEW_PARALLEL_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "xla/ffi/api/ffi.h"

namespace clew {

// Calls work(i) for i = 0 .. count - 1, on the caller's thread and on idle ones of the pool.
//
// The caller takes pieces like everybody else, and waits only for those that somebody has begun:
// a pool whose threads are all busy, with kernels that wait as well, cannot lock up.
template <typename Work>
void for_each(xla::ffi::ThreadPool& pool, int64_t count, const Work& work) {
  struct Shared {
    std::atomic<int64_t> next{0};
    int64_t done = 0;
    std::mutex mutex;
    std::condition_variable finished;
  };
  auto shared = std::make_shared<Shared>();
  auto take = [shared, count, &work] {
    for (int64_t i; (i = shared->next.fetch_add(1)) < count;) {
      work(i);
      std::lock_guard<std::mutex> lock(shared->mutex);
      if (++shared->done == count) shared->finished.notify_all();
    }
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), count) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    // `work` is gone when a late helper starts, but then there is no piece left to call it for.
    auto helper = take;
    pool.Schedule(std::move(helper));
  }
  take();
  std::unique_lock<std::mutex> lock(shared->mutex);
  shared->finished.wait(lock, [&] { return shared->done == count; });
}

}  // namespace clew

#endif  // CLEW_PARALLEL_H_
