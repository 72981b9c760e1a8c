// How a state that is too large for the first cache is taken through time: some of its rows, some
// steps.
#ifndef CLEW_GROUPS_H_
#define CLEW_GROUPS_H_

#include <cstdint>
#include <type_traits>

namespace clew {

// Of this many steps the backward passes keep one state.
constexpr int64_t kPiece = 16;

constexpr int kRows = 4;  // of a state that are taken together

// Calls work(first row, how many as a constant) for all rows, `most` at a time while there are
// so many.
template <int most = kRows, typename Work>
void each_group(int64_t rows, const Work& work) {
  int64_t v = 0;
  for (; v + most <= rows; v += most) work(v, std::integral_constant<int, most>());
  for (; v + kRows <= rows; v += kRows) work(v, std::integral_constant<int, kRows>());
  if (rows - v == 3) return work(v, std::integral_constant<int, 3>());
  if (rows - v == 2) return work(v, std::integral_constant<int, 2>());
  if (rows - v == 1) work(v, std::integral_constant<int, 1>());
}

}  // namespace clew

#endif  // CLEW_GROUPS_H_
