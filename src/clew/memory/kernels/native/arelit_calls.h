// AReLiT's kernel as XLA calls it.
#ifndef CLEW_ARELIT_CALLS_H_
#define CLEW_ARELIT_CALLS_H_

#include "calls.h"
#include "arelit_backward.h"

namespace clew {

// Keys are [.., rows, heads, eta, head] and values [.., vectors, heads, head].
template <ffi::DataType type, typename T = ffi::NativeType<type>>
AReLiT<T> make_arelit(In<type> products, In<type> maps, In<type> cosines, Flags starts,
                      In<type> keys, In<type> values, Weights weights, Scale scale,
                      Epsilon epsilon) {
  const auto k = keys.dimensions(), v = values.dimensions();
  AReLiT<T> w;
  w.sizes = make_sizes(products, maps);
  w.rows = k[k.size() - 4];
  w.vectors = v[v.size() - 3];
  w.weights = weights->begin();
  w.scale = *scale;
  w.epsilon = *epsilon;
  w.products = products.typed_data();
  w.maps = maps.typed_data();
  w.cosines = cosines.typed_data();
  w.starts = starts.typed_data();
  w.keys = keys.typed_data();
  w.values = values.typed_data();
  return w;
}

template <ffi::DataType type>
ffi::Error arelit_forward_call(ffi::ThreadPool pool, In<type> products, In<type> maps,
                              In<type> cosines, Flags starts, In<type> keys, In<type> values,
                              Out<type> outputs, Out<type> last_keys, Out<type> last_values,
                              Weights weights, Scale scale, Epsilon epsilon) {
  const auto w =
      make_arelit<type>(products, maps, cosines, starts, keys, values, weights, scale, epsilon);
  for_each_head(pool, w.sizes.n, w.sizes.heads, [&](int64_t n, int64_t h) {
    arelit_forward(w, n, h, outputs->typed_data(),
                  last_keys->typed_data(), last_values->typed_data());
  });
  return ffi::Error::Success();
}

template <ffi::DataType type>
ffi::Error arelit_backward_call(ffi::ThreadPool pool, In<type> products, In<type> maps,
                               In<type> cosines, Flags starts, In<type> keys, In<type> values,
                               In<type> of_outputs, In<type> of_last_keys,
                               In<type> of_last_values, Out<type> of_products, Out<type> of_maps,
                               Out<type> of_keys, Out<type> of_values, Weights weights,
                               Scale scale, Epsilon epsilon) {
  const auto w =
      make_arelit<type>(products, maps, cosines, starts, keys, values, weights, scale, epsilon);
  const AReLiTGradients<ffi::NativeType<type>> g{
      of_outputs.typed_data(), of_last_keys.typed_data(), of_last_values.typed_data(),
      of_products->typed_data(), of_maps->typed_data(), of_keys->typed_data(),
      of_values->typed_data()};
  for_each_head(pool, w.sizes.n, w.sizes.heads, [&](int64_t n, int64_t h) {
    arelit_backward(w, g, n, h);
  });
  return ffi::Error::Success();
}

}  // namespace clew

#endif  // CLEW_ARELIT_CALLS_H_
