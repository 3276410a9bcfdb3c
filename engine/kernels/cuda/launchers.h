// The CUDA kernels of the device port, as calls that queue them on a stream. Arguments and results
// are those of the methods of port.h with the same names; shapes without elements queue nothing.
// Each runtime_error is a launch that the device refused. `scratch` is memory of the device that
// nobody else uses before the call's work is done.
// Tested by: tests/engine/kernels/cuda/kernels_test.cc
#pragma once

#include <cstddef>

#include "engine/kernels/port.h"

namespace dsj::optim {
struct LambMoments;
}

namespace dsj::kernels::cuda {

/// Partial sums of a norm's backward: enough blocks to fill a large device twice.
int64_t norm_partials(int64_t rows);
void rms_norm(Stream, Rows x, Rows w, Rows y, float* rstd, float eps);
void rms_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* rstd, Rows dx, Rows dw);
void layer_norm(Stream, Rows x, Rows w, Rows b, Rows y, float* mean, float* rstd, float eps);
void layer_norm_backward(Stream, Rows dy, Rows x, Rows w, const float* mean, const float* rstd,
                         Rows dx, Rows dw, Rows db);
void sum_rows(Stream, Rows partial, Rows out, bool accumulate);
void head_norm(Stream, Rows x, Rows w, int64_t heads, float* rstd, float eps);
void head_norm_backward(Stream, Rows dy, Rows x, Rows w, int64_t heads, const float* rstd, Rows dw);

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
/// scratch: one number per row of x.
void scatter_rows(Stream, Rows x, const int64_t* index, Rows out, int64_t* scratch);

/// `rule`: the one of optim::ElementRules with the number `which`. A few launches, whatever the
/// number of spans.
void update(Stream, size_t which, const void* rule, float grad_scale, Spans spans);
/// scratch: 2 update_blocks(spans) doubles.
void lamb_moments(Stream, const optim::LambMoments& rule, float grad_scale, Spans spans,
                  double* scratch);
int64_t update_blocks(Spans spans);
void lamb_coefficients(Stream, double least, double most, const double* sums, double* coefficients,
                       int64_t n);

}  // namespace dsj::kernels::cuda
