// What the kernels' calls from XLA have in common.
#ifndef CLEW_CALLS_H_
#define CLEW_CALLS_H_

#include "features.h"
#include "parallel.h"

// Handlers are bound by their signatures, in which XLA's threads may stand too.
template <>
struct xla::ffi::CtxBinding<xla::ffi::ThreadPool> {
  using Ctx = xla::ffi::ThreadPool;
};

namespace clew {

namespace ffi = xla::ffi;

template <ffi::DataType type>
using In = ffi::Buffer<type>;
template <ffi::DataType type>
using Out = ffi::Result<ffi::Buffer<type>>;
using Flags = ffi::Buffer<ffi::PRED>;
using Integers = ffi::Buffer<ffi::S32>;

// Attributes, by the names that Python gives them.
inline constexpr char kEpsilon[] = "epsilon", kJoint[] = "joint", kScale[] = "scale";
inline constexpr char kWeights[] = "weights";
using Epsilon = ffi::Attr<double, kEpsilon>;
using Joint = ffi::Attr<double, kJoint>;
using Scale = ffi::Attr<double, kScale>;
using Weights = ffi::Attr<ffi::Span<const double>, kWeights>;

// From the last axes of products [.., time, 5, heads, head] and maps [.., time, 3, heads, eta].
template <ffi::DataType type>
Sizes make_sizes(const In<type>& products, const In<type>& maps) {
  const auto p = products.dimensions(), m = maps.dimensions();
  Sizes s;
  s.time = p[p.size() - 4];
  s.heads = p[p.size() - 2];
  s.head = p[p.size() - 1];
  s.eta = m[m.size() - 1];
  s.n = products.element_count() / (s.time * s.step_products());
  return s;
}

// Calls work(n, h) for every head h of `count` items n, shared out to the pool's threads.
template <typename Work>
void for_each_head(ffi::ThreadPool& pool, int64_t count, int64_t heads, const Work& work) {
  for_each(pool, count * heads, [&](int64_t i) { work(i / heads, i % heads); });
}

}  // namespace clew

#endif  // CLEW_CALLS_H_
