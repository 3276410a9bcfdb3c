// The engine's own matrix products (engine/kernels/products.h) on tensors. A CPU has them; other
// devices leave all products to libtorch. Which of the two multiplies is decided here, by type and
// shape alone: a choice by a clock would give a run other bits at every start.
//
// fp32 products are ours wherever the processor has fused multiply-add: so a run has the same bits
// whoever made the processor, which MKL's products do not have, and ours are faster where measured.
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

/// Whether out [m, n] = a [m, k] b [k, n] of this tensor's type and device is multiply()'s. On a
/// CPU: in fp32, all if there is fused multiply-add; in 16 bits, small ones, and all that libtorch
/// has no units for.
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k);
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k, Products asked);

/// out [m, n] = a [m, k] b [k, n] + bias [n] + addend [m, n] (each may be undefined), summed in fp32
/// and rounded once. a, b and bias are of one type, fp32, bf16 or fp16; out is of it or fp32, addend
/// of out's, and neighbours in their rows are adjacent. addend may be out itself. The result does
/// not depend on the number of threads.
void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              const at::Tensor& addend);

}  // namespace dsj::device
