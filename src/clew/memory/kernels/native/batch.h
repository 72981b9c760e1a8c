// Batches whose inputs may be the same for many of their items.
#ifndef CLEW_BATCH_H_
#define CLEW_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

namespace clew {

// An input that some leading axes may not have: it is then the same for all of them.
template <typename T>
struct Shared {
  const T* data;
  const int64_t* index;  // which of its items belongs to item n of the batch
  int64_t size;          // of an item
  const T* at(int64_t n) const { return data + index[n] * size; }
};

// Which item of every input belongs to which of a batch: leading axes of size 1 are shared.
struct Batch {
  std::vector<int64_t> sizes;
  int64_t count = 1;
  std::vector<std::unique_ptr<int64_t[]>> indices;

  template <typename Dimensions>
  Batch(const Dimensions& result, int64_t own) {
    for (size_t i = 0; i + own < result.size(); ++i) {
      sizes.push_back(result[i]);
      count *= result[i];
    }
  }

  // An input with `own` axes of its own.
  template <typename T, typename Input>
  Shared<T> share(const Input& input, int64_t own) {
    const auto dimensions = input.dimensions();
    int64_t size = 1;
    for (size_t i = dimensions.size() - own; i < dimensions.size(); ++i) size *= dimensions[i];
    auto index = std::make_unique<int64_t[]>(count);
    for (int64_t n = 0; n < count; ++n) {
      int64_t rest = n, step = 1, at = 0;
      for (size_t i = sizes.size(); i-- > 0; rest /= sizes[i]) {
        if (dimensions[i] == 1) continue;
        at += rest % sizes[i] * step;
        step *= sizes[i];
      }
      index[n] = at;
    }
    indices.push_back(std::move(index));
    return {input.typed_data(), indices.back().get(), size};
  }
};

}  // namespace clew

#endif  // CLEW_BATCH_H_
