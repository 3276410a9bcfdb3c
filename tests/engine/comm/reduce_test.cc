#include "engine/comm/reduce.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace dsj::comm {
namespace {

using Reduce = void (*)(void*, std::span<const void* const>, std::int64_t, at::ScalarType, Op);

at::Tensor reduced(Reduce with, const std::vector<at::Tensor>& tensors, Op op) {
  at::Tensor out = at::empty_like(tensors[0]);
  std::vector<const void*> sources;
  for (const at::Tensor& tensor : tensors) sources.push_back(tensor.const_data_ptr());
  with(out.data_ptr(), sources, out.numel(), out.scalar_type(), op);
  return out;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// torch's own arithmetic: in float32 for 16-bit types, rounded once.
at::Tensor by_torch(const std::vector<at::Tensor>& tensors, Op op) {
  const at::ScalarType dtype = tensors[0].scalar_type();
  const bool narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto wide = [&](const at::Tensor& tensor) {
    return narrow ? tensor.to(at::kFloat) : tensor;
  };
  at::Tensor sum = wide(tensors[0]);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    sum = op == Op::Sum ? sum + wide(tensors[i]) : at::maximum(sum, wide(tensors[i]));
  }
  return sum.to(dtype);
}

TEST(Reduce, EqualsTorchBitForBit) {
  at::manual_seed(7);
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong}) {
    for (const std::int64_t n : {1, 7, 8, 1023, 1024, 1025, 5000}) {
      for (const int count : {1, 2, 3, 4}) {
        std::vector<at::Tensor> tensors;
        for (int i = 0; i < count; ++i) {
          tensors.push_back(at::randn({n}, at::kDouble).mul(300).to(dtype));
        }
        for (const Op op : {Op::Sum, Op::Max}) {
          const at::Tensor expected = by_torch(tensors, op);
          EXPECT_TRUE(same_bits(reduced(reduce, tensors, op), expected))
              << at::toString(dtype) << " n " << n << " of " << count;
          EXPECT_TRUE(same_bits(reduced(reduce_portable, tensors, op), expected))
              << "portable " << at::toString(dtype) << " n " << n << " of " << count;
        }
      }
    }
  }
}

TEST(Reduce, EverySixteenBitPatternRoundsAsTorchDoes) {
  const at::Tensor bits = at::arange(65536, at::kInt).to(at::kShort);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor all = bits.view(dtype);
    const at::Tensor other = at::full({65536}, 1.0 / 3, dtype);
    const at::Tensor expected = by_torch({all, other}, Op::Sum);
    for (const Reduce with : {Reduce(reduce), Reduce(reduce_portable)}) {
      const at::Tensor found = reduced(with, {all, other}, Op::Sum);
      EXPECT_TRUE(same_bits(found, reduced(reduce_portable, {all, other}, Op::Sum)))
          << "NaN, too: " << at::toString(dtype);
      const at::Tensor is_nan = expected.isnan();
      EXPECT_TRUE(at::equal(found.isnan(), is_nan)) << at::toString(dtype);
      EXPECT_TRUE(at::equal(found.masked_select(is_nan.logical_not()),
                            expected.masked_select(is_nan.logical_not())))
          << at::toString(dtype);
    }
  }
}

TEST(Reduce, OutMayBeAnySourceAndMaxKeepsNan) {
  const at::Tensor a = at::arange(3000, at::kFloat);
  const at::Tensor b = at::arange(3000, at::kFloat).neg();
  at::Tensor c = at::full({3000}, 5.0f);
  const void* sources[] = {a.const_data_ptr(), b.const_data_ptr(), c.const_data_ptr()};
  reduce(c.data_ptr(), sources, 3000, at::kFloat, Op::Sum);
  EXPECT_TRUE(at::equal(c, at::full({3000}, 5.0f)));

  const float nan = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor left = at::tensor({nan, 1.0f, -1.0f});
  const at::Tensor right = at::tensor({1.0f, nan, -2.0f});
  const at::Tensor found = reduced(reduce, {left, right}, Op::Max);
  EXPECT_TRUE(found[0].isnan().item<bool>());
  EXPECT_TRUE(found[1].isnan().item<bool>());
  EXPECT_EQ(found[2].item<float>(), -1.0f);
}

}  // namespace
}  // namespace dsj::comm
