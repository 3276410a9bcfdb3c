// The engine's own 16-bit matrix products (engine/kernels/products.h) on tensors. A CPU has them;
// other devices leave all products to libtorch. Which of the two multiplies is decided here, by the
// shape alone: a choice by a clock would give a run other bits at every start.
//
// libtorch's products of bf16 are oneDNN's. It compiles a kernel for each new number of rows, which
// takes half a millisecond and more, and real rows bring a new number with every micro-batch. Its
// kernels are faster than ours from about 128 million multiplications on.
// Tested by: tests/engine/models/gemm_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsj::device {

/// Who multiplies where both can.
enum class Products { ByShape, Own, Library };
/// What the environment asks for. `asked` is DSJ_PRODUCTS, "own" or "library"; nullptr: by shape.
/// `limit` is ONEDNN_MAX_CPU_ISA: where it leaves oneDNN no bf16 kernels, products are ours, unless
/// the library is asked for. A rank refuses other values of `asked`.
Products products_asked(const char* asked, const char* limit);

/// Whether out [m, n] = a [m, k] b [k, n] of this tensor's type and device is multiply()'s: of
/// 16-bit types on a CPU, all that libtorch has no units for, and small ones.
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k);
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k, Products asked);

/// out [m, n] (+)= a [m, k] b [k, n] + bias [n] (may be undefined), summed in fp32 and rounded
/// once. a, b and bias are of one 16-bit type; out is of it or fp32, and neighbours in its rows are
/// adjacent. The result does not depend on the number of threads.
void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              bool accumulate);

}  // namespace dsj::device
