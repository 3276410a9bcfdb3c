#include "engine/device/products.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "common/check.h"
#include "common/cpu.h"
#include "engine/device/device.h"
#include "engine/kernels/products.h"

namespace dsj::device {
namespace {

/// `kept` owns a contiguous copy if the tensor has no unit stride.
kernels::Operand operand(const at::Tensor& tensor, at::Tensor& kept) {
  const bool adjacent = tensor.stride(0) == 1 || tensor.stride(1) == 1;
  kept = adjacent ? tensor : tensor.contiguous();
  return {kept.const_data_ptr(), kept.stride(0), kept.stride(1)};
}

}  // namespace

Products products_asked(const char* asked, const char* limit) {
  const std::string_view text = asked ? asked : "", isa = limit ? limit : "";
  if (text == "own") return Products::Own;
  if (text == "library") return Products::Library;
  for (const char* without :
       {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI"})
    if (isa == without) return Products::Own;
  return Products::ByShape;
}

bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k, Products asked) {
  const at::ScalarType type = of.scalar_type();
  if (!of.device().is_cpu()) return false;
  if (type == at::kFloat)
    return asked == Products::ByShape ? kernels::product_table().fused : asked == Products::Own;
  if (type != at::kBFloat16 && type != at::kHalf) return false;
  if (!device::of(of).multiplies(type)) return true;
  if (asked != Products::ByShape) return asked == Products::Own;
  return m * n * k < kLibraryProducts;
}

bool multiplies_itself(const at::Tensor& of, int64_t m, int64_t n, int64_t k) {
  static const Products asked =
      products_asked(std::getenv("DSJ_PRODUCTS"), std::getenv("ONEDNN_MAX_CPU_ISA"));
  return multiplies_itself(of, m, n, k, asked);
}

void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
              const at::Tensor& addend) {
  DSJ_CHECK(out.size(1) <= 1 || out.stride(1) == 1);
  DSJ_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1));
  if (a.size(1) == 0) {  // an empty sum
    addend.defined() ? out.copy_(addend) : out.zero_();
    if (bias.defined()) out.add_(bias);
    return;
  }
  if (addend.defined())
    DSJ_CHECK(addend.scalar_type() == out.scalar_type() && addend.sizes() == out.sizes() &&
              (addend.size(1) <= 1 || addend.stride(1) == 1));
  at::Tensor kept_a, kept_b;
  const at::Tensor kept_bias = bias.defined() ? bias.contiguous() : bias;
  const kernels::Product product{.m = a.size(0),
                                 .n = b.size(1),
                                 .k = a.size(1),
                                 .type = type_of(a.scalar_type()),
                                 .a = operand(a, kept_a),
                                 .b = operand(b, kept_b),
                                 .bias = bias.defined() ? kept_bias.const_data_ptr() : nullptr,
                                 .out = out.data_ptr(),
                                 .out_row = out.stride(0),
                                 .out_type = type_of(out.scalar_type()),
                                 .addend = addend.defined() ? addend.const_data_ptr() : nullptr,
                                 .addend_row = addend.defined() ? addend.stride(0) : 0};
  const kernels::ProductTable& table = kernels::product_table();
  const kernels::Blocks blocks = table.blocks(product, at::get_num_threads());
  at::parallel_for(0, blocks.count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) table.block(product, blocks, i);
  });
}

}  // namespace dsj::device
