// The gradient of `window.h`: a block's weights are computed again, and nothing was kept.
#ifndef CLEW_WINDOW_BACKWARD_H_
#define CLEW_WINDOW_BACKWARD_H_

#include "window.h"

namespace clew {

// Where the gradients go, with the shapes of what they belong to and a whole batch of each.
template <typename T>
struct WindowGradients {
  Shared<T> outputs;
  T *queries, *keys, *values, *old_keys, *old_values, *distances, *content, *distant;
};

// What is collected for one head; laid out as `Head` lays out what it belongs to.
template <typename T>
struct HeadGradients {
  T *keys, *values, *far, *outputs, *content, *distant, *u, *v;

  HeadGradients(const Head<T>& head, Room<T>& room) {
    const int64_t rows = head.long_rows * head.wide, block = kQueries * head.wide;
    const int64_t held[] = {rows, rows, head.long_far * head.wide, block, block, block,
                            head.wide, head.wide};
    T** places[] = {&keys, &values, &far, &outputs, &content, &distant, &u, &v};
    int64_t total = 0;
    for (int64_t size : held) total += size;
    if (static_cast<int64_t>(room.size()) < total) room.resize(total);
    std::fill_n(room.data(), total, T(0));
    T* at = room.data();
    for (int i = 0; i < 8; ++i) {
      *places[i] = at;
      at += held[i];
    }
  }
};

// The gradient of the scores, P * (dP - sum_j P dP), in the place of the scores. From every dP that
// of the largest P is taken, which changes nothing but rounding: where P is nearly 1, dP and the sum
// are equal but for that.
template <typename T>
void through_softmax(const Block<T>& block, const HeadGradients<T>& g) {
  const Head<T>& head = block.head;
  multiply<false>(block.padded(), block.columns, head.w.head, g.outputs, head.wide, 1,
                  head.turned_values + block.first, head.long_rows, head.scores, head.span);
  for (int64_t i = 0; i < block.count; ++i) {
    T* of_score = head.scores + i * head.span;
    const T* weight = head.weights + i * head.span;
    const T* end = weight + block.columns;
    const T* top = std::find(weight, end, largest(weight, end));
    const T there = top == end ? T(0) : of_score[top - weight];  // not found: not a number
    // A pass of its own: in one with the sum, compilers add that to what is taken first.
    CLEW_INDEPENDENT
    for (int64_t j = 0; j < block.columns; ++j) of_score[j] -= there;
    T sum = 0;
    for (int64_t j = 0; j < block.columns; ++j) sum += weight[j] * of_score[j];
    CLEW_INDEPENDENT
    for (int64_t j = 0; j < block.columns; ++j) of_score[j] = weight[j] * (of_score[j] - sum);
  }
}

// From the gradient of the scores to those of the distances and of the queries that asked there.
template <typename T>
void through_distances(const Block<T>& block, const HeadGradients<T>& g) {
  const Head<T>& head = block.head;
  const int64_t from = block.far_begin(), columns = block.far_columns();
  for (int64_t i = 0; i < block.count; ++i) {
    T* row = head.shifted + i * head.span;
    const int64_t end = block.last(i) - block.first + 1, start = end - block.seen(i);
    std::fill_n(row, columns, T(0));
    std::copy(head.scores + i * head.span + start, head.scores + i * head.span + end,
              row + block.far_from(i) + start - from);
  }
  multiply<true>(columns, head.wide, block.count, head.shifted, 1, head.span, head.distant,
                 head.wide, g.far + from * head.wide, head.wide);
  multiply<false>(block.padded(), head.wide, columns, head.shifted, head.span, 1,
                  head.far + from * head.wide, head.wide, g.distant, head.wide);
}

template <typename T>
void block_backward(const Block<T>& block, const HeadGradients<T>& g, const Shared<T>& of_outputs,
                    T* of_queries) {
  const Head<T>& head = block.head;
  const Window<T>& w = head.w;
  const int64_t wide = head.wide, first = block.first * wide;
  block.weigh();
  for (int64_t i = 0; i < block.count; ++i) {
    T* to = g.outputs + i * wide;
    const T* from = of_outputs.at(head.n) + ((block.begin + i) * w.heads + head.h) * w.head;
    if (block.is_spoiled(i))
      std::fill_n(to, w.head, T(0));
    else
      std::copy_n(from, w.head, to);
  }
  through_softmax(block, g);
  multiply<true>(block.columns, wide, block.count, head.weights, 1, head.span, g.outputs, wide,
                 g.values + first, wide);
  multiply<true>(block.columns, wide, block.count, head.scores, 1, head.span, head.content, wide,
                 g.keys + first, wide);
  multiply<false>(block.padded(), wide, block.columns, head.scores, head.span, 1,
                  head.keys + first, wide, g.content, wide);
  if (head.reach > 0) through_distances(block, g);
  for (int64_t i = 0; i < block.count; ++i) {
    T* to = of_queries + ((head.n * w.time + block.begin + i) * w.heads + head.h) * w.head;
    for (int64_t d = 0; d < w.head; ++d) {
      const T of_content = w.scale() * g.content[i * wide + d];
      const T of_distant = w.scale() * g.distant[i * wide + d];
      to[d] = of_content + of_distant;
      g.u[d] += of_content;
      g.v[d] += of_distant;
    }
  }
}

// Puts the rows' gradients where the rows came from.
template <typename T>
void scatter(const Head<T>& head, const T* rows, T* old, T* chunk) {
  const Window<T>& w = head.w;
  old += (head.n * w.heads + head.h) * w.slots * w.head;
  std::fill_n(old, w.slots * w.head, T(0));
  for (int64_t j = 0; j < head.rows; ++j) {
    T* to = j < head.past ? old + head.slot(j) * w.head
                          : chunk + ((head.n * w.time + j - head.past) * w.heads + head.h) * w.head;
    std::copy_n(rows + j * head.wide, w.head, to);
  }
}

template <typename T>
void window_backward(const Window<T>& w, const WindowGradients<T>& to, int64_t n, int64_t h) {
  const Head<T> head(w, n, h, scratch<T>(0));
  const HeadGradients<T> g(head, scratch<T>(1));
  head.turn(head.values, head.rows, head.turned_values, head.long_rows);
  for (int64_t begin = 0; begin < w.time; begin += kQueries)
    block_backward(Block<T>(head, begin), g, to.outputs, to.queries);
  scatter(head, g.keys, to.old_keys, to.keys);
  scatter(head, g.values, to.old_values, to.values);
  const int64_t at = n * w.heads + h;
  T* distances = to.distances + at * w.far * w.head;
  std::fill_n(distances, w.far * w.head, T(0));
  for (int64_t c = 0; c < head.reach; ++c)
    std::copy_n(g.far + c * head.wide, w.head, distances + (head.reach - 1 - c) * w.head);
  std::copy_n(g.u, w.head, to.content + at * w.head);
  std::copy_n(g.v, w.head, to.distant + at * w.head);
}

}  // namespace clew

#endif  // CLEW_WINDOW_BACKWARD_H_
