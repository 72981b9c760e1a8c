// What the shared library offers: every kernel, for float and for double.
#include "cells_calls.h"
#include "relit_calls.h"
#include "arelit_calls.h"
#include "matrix_calls.h"
#include "window_calls.h"

namespace ffi = xla::ffi;

#define CLEW_EXPORT(kernel)                                                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(clew_##kernel##_float32, clew::kernel##_call<ffi::F32>);  \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(clew_##kernel##_float64, clew::kernel##_call<ffi::F64>)

CLEW_EXPORT(arelit_forward);
CLEW_EXPORT(arelit_backward);
CLEW_EXPORT(relit_forward);
CLEW_EXPORT(relit_backward);
CLEW_EXPORT(matrix_forward);
CLEW_EXPORT(matrix_backward);
CLEW_EXPORT(window_forward);
CLEW_EXPORT(window_backward);
CLEW_EXPORT(window_step);
CLEW_EXPORT(lstm_forward);
CLEW_EXPORT(lstm_backward);
CLEW_EXPORT(gru_forward);
CLEW_EXPORT(gru_backward);
