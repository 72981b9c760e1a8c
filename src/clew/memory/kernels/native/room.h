// What a kernel holds for itself, from the beginning of a cache line on.
#ifndef CLEW_ROOM_H_
#define CLEW_ROOM_H_

#include <cstddef>
#include <new>
#include <vector>

namespace clew {

// Allocates where cache lines begin: a vector of 64 bytes that lies across two of them is read
// twice, which took half of the speed of products with four rows.
template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t line{64};
  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), line));
  }
  void deallocate(T* at, std::size_t) { ::operator delete(at, line); }
  template <typename U>
  bool operator==(const LineAllocator<U>&) const { return true; }
  template <typename U>
  bool operator!=(const LineAllocator<U>&) const { return false; }
};

// Numbers that a kernel holds for itself.
template <typename T>
using Room = std::vector<T, LineAllocator<T>>;

}  // namespace clew

#endif  // CLEW_ROOM_H_
