// ReLiT's kernel as XLA calls it.
#ifndef CLEW_RELIT_CALLS_H_
#define CLEW_RELIT_CALLS_H_

#include "calls.h"
#include "relit_backward.h"

namespace clew {

// The matrix is [.., heads, head, eta, head], the normaliser [.., heads, eta, head].
template <ffi::DataType type, typename T = ffi::NativeType<type>>
ReLiT<T> make_relit(In<type> products, In<type> maps, Flags starts, In<type> matrix,
                    In<type> normaliser, Joint joint, Epsilon epsilon) {
  ReLiT<T> o;
  o.sizes = make_sizes(products, maps);
  o.joint = *joint != 0;
  o.epsilon = *epsilon;
  o.products = products.typed_data();
  o.maps = maps.typed_data();
  o.starts = starts.typed_data();
  o.matrix = matrix.typed_data();
  o.normaliser = normaliser.typed_data();
  return o;
}

template <ffi::DataType type>
ffi::Error relit_forward_call(ffi::ThreadPool pool, In<type> products, In<type> maps, Flags starts,
                              In<type> matrix, In<type> normaliser, Out<type> outputs,
                              Out<type> last_matrix, Out<type> last_normaliser, Joint joint,
                              Epsilon epsilon) {
  const auto o = make_relit<type>(products, maps, starts, matrix, normaliser, joint, epsilon);
  for_each_head(pool, o.sizes.n, o.sizes.heads, [&](int64_t n, int64_t h) {
    relit_forward(o, n, h, outputs->typed_data(),
                  last_matrix->typed_data(), last_normaliser->typed_data());
  });
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error relit_backward_call(ffi::ThreadPool pool, In<type> products, In<type> maps,
                               Flags starts, In<type> matrix, In<type> normaliser,
                               In<type> of_outputs, In<type> of_last_matrix,
                               In<type> of_last_normaliser, Out<type> of_products,
                               Out<type> of_maps, Out<type> of_matrix, Out<type> of_normaliser,
                               Joint joint, Epsilon epsilon) {
  const auto o = make_relit<type>(products, maps, starts, matrix, normaliser, joint, epsilon);
  const ReLiTGradients<ffi::NativeType<type>> g{
      of_outputs.typed_data(), of_last_matrix.typed_data(), of_last_normaliser.typed_data(),
      of_products->typed_data(), of_maps->typed_data(), of_matrix->typed_data(),
      of_normaliser->typed_data()};
  for_each_head(pool, o.sizes.n, o.sizes.heads, [&](int64_t n, int64_t h) {
    relit_backward(o, g, n, h);
  });
  return ffi::Error::Success();
}

}  // namespace clew

#endif  // CLEW_RELIT_CALLS_H_
