// The matrix recurrence's kernel as XLA calls it.
#ifndef CLEW_MATRIX_CALLS_H_
#define CLEW_MATRIX_CALLS_H_

#include <type_traits>

#include "calls.h"
#include "matrix_backward.h"

namespace clew {

template <Rule value>
using RuleIs = std::integral_constant<Rule, value>;

// The state is [.., heads, value, key]; where a rule has no rate, or erases nothing, those arrays
// have no numbers.
template <ffi::DataType type, typename T = ffi::NativeType<type>>
MatrixChunk<T> make_matrix(In<type> query, In<type> key, In<type> value, In<type> keep,
                           In<type> rate, In<type> erased, In<type> share, Flags starts,
                           In<type> state) {
  const auto s = state.dimensions(), d = keep.dimensions(), t = starts.dimensions();
  const auto data = [](const In<type>& x) {
    return x.element_count() ? x.typed_data() : nullptr;
  };
  MatrixChunk<T> c;
  c.time = t[t.size() - 1];
  c.heads = s[s.size() - 3];
  c.value = s[s.size() - 2];
  c.key = s[s.size() - 1];
  c.decays = d[d.size() - 1];
  c.queries = query.typed_data();
  c.keys = key.typed_data();
  c.values = value.typed_data();
  c.keeps = keep.typed_data();
  c.rates = data(rate);
  c.erased = data(erased);
  c.shares = data(share);
  c.state = state.typed_data();
  c.starts = starts.typed_data();
  return c;
}

// Calls work(n, h, rule, keyed) for every head of every item, both last ones as constants.
template <typename T, typename Work>
void for_each_matrix(ffi::ThreadPool& pool, const MatrixChunk<T>& c, int64_t items,
                     const Work& work) {
  const auto run = [&](auto rule, auto keyed) {
    for_each_head(pool, items, c.heads, [&](int64_t n, int64_t h) { work(n, h, rule, keyed); });
  };
  const bool keyed = c.decays > 1;
  if (c.erased) return run(RuleIs<Rule::erase>(), std::true_type());
  if (c.rates) return run(RuleIs<Rule::delta>(), std::false_type());
  if (keyed) return run(RuleIs<Rule::sum>(), std::true_type());
  run(RuleIs<Rule::sum>(), std::false_type());
}

template <ffi::DataType type>
ffi::Error matrix_forward_call(ffi::ThreadPool pool, In<type> query, In<type> key, In<type> value,
                               In<type> keep, In<type> rate, In<type> erased, In<type> share,
                               Flags starts, In<type> state, Out<type> outputs, Out<type> last) {
  const auto c = make_matrix<type>(query, key, value, keep, rate, erased, share, starts, state);
  for_each_matrix(pool, c, starts.element_count() / c.time,
                  [&](int64_t n, int64_t h, auto rule, auto keyed) {
                    matrix_forward<rule.value, keyed.value>(c, n, h, outputs->typed_data(),
                                                            last->typed_data());
                  });
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error matrix_backward_call(ffi::ThreadPool pool, In<type> query, In<type> key, In<type> value,
                                In<type> keep, In<type> rate, In<type> erased, In<type> share,
                                Flags starts, In<type> state, In<type> of_outputs,
                                In<type> of_last, Out<type> of_query, Out<type> of_key,
                                Out<type> of_value, Out<type> of_keep, Out<type> of_rate,
                                Out<type> of_erased, Out<type> of_share, Out<type> of_state) {
  const auto c = make_matrix<type>(query, key, value, keep, rate, erased, share, starts, state);
  const MatrixGradients<ffi::NativeType<type>> g{
      of_outputs.typed_data(), of_last.typed_data(),    of_query->typed_data(),
      of_key->typed_data(),    of_value->typed_data(),  of_keep->typed_data(),
      of_rate->typed_data(),   of_erased->typed_data(), of_share->typed_data(),
      of_state->typed_data()};
  for_each_matrix(pool, c, starts.element_count() / c.time,
                  [&](int64_t n, int64_t h, auto rule, auto keyed) {
                    matrix_backward<rule.value, keyed.value>(c, g, n, h);
                  });
  return ffi::Error::Success();
}

}  // namespace clew

#endif  // CLEW_MATRIX_CALLS_H_
