// The CUDA kernels of the device port, as calls that queue them on a stream. Arguments and results
// are those of the methods of port.h with the same names; shapes without elements queue nothing.
// Each runtime_error is a launch that the device refused. `scratch` is memory of the device that
// nobody else uses before the call's work is done.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc
#pragma once

#include "engine/kernels/port.h"

namespace dsj::kernels::cuda {

/// Partial sums of a norm's backward: enough blocks to fill a large device twice.
int64_t norm_partials(int64_t rows);
void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps);
void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx, Rows dw);
void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd, float eps);
void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                         Rows dx, Rows dw, Rows db);
void sum_rows(Stream, Rows partial, Rows out, bool accumulate);

void rope(Stream, Rows x, const float* cos, const float* sin, const int64_t* positions,
          int64_t heads, int64_t dim, float sign);
void swiglu(Stream, Rows gate_up, Rows a);
void swiglu_backward(Stream, Rows da, Rows gate_up);
void gelu_new(Stream, Rows x, Rows y);
void gelu_new_backward(Stream, Rows dy, Rows x);

/// scratch: one double per row.
void cross_entropy(Stream, Rows logits, const int64_t* labels, float scale, double* loss,
                   double* scratch);
/// scratch: square_blocks(x.width) doubles.
void sum_of_squares(Stream, Rows x, double* sum, double* scratch);
int64_t square_blocks(int64_t n);

}  // namespace dsj::kernels::cuda
