// The engine's own matrix products (engine/kernels/products.h) on tensors. Only a CPU has them;
// other devices leave all products to libtorch. This file decides which of the two multiplies, by
// type and shape only: a choice by timing would give a run other bits at every start.
//
// fp32 products are ours if the CPU has fused multiply-add. So a run has the same bits on CPUs of
// any vendor, unlike with MKL's products; ours were also faster where measured. libtorch's bf16
// products are oneDNN's. It compiles a kernel for each new number of rows, which takes half a
// millisecond or more, and real rows bring a new number with every micro-batch. Its kernels are
// faster than ours from about 128 million multiplications on.
// Tested by: tests/engine/models/gemm_test.cc
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace dsj::device {

/// Which implementation multiplies if both can.
enum class Products { ByShape, Own, Library };
/// The environment's choice. `asked`: DSJ_PRODUCTS, "own" or "library"; nullptr means by shape.
/// `limit`: ONEDNN_MAX_CPU_ISA; if it disables oneDNN's bf16 kernels, products are ours, unless
/// `asked` is "library". (A rank refuses other values of `asked` elsewhere.)
Products products_asked(const char* asked, const char* limit);

/// Whether multiply() computes out [m, n] = a [m, k] b [k, n] for this tensor's type and device. On
/// a CPU: in fp32, always if there is fused multiply-add; in 16 bits, small products, and all for
/// which libtorch has no hardware units.
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k);
bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k, Products asked);

/// out [m, n] = a [m, k] b [k, n] + bias [n] + addend [m, n], summed in fp32 and rounded once. bias
/// and addend may be undefined. a, b and bias have one type, fp32, bf16 or fp16; out has it or
/// fp32; addend has out's type. Rows of out and addend are contiguous; addend may be out. The
/// result does not depend on the number of threads.
void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              const at::Tensor& addend);

}  // namespace dsj::device
