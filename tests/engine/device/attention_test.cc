// Which form of attention a call takes, and how heads lie in what it is given. The calls themselves:
// tests/engine/simulated/attention_test.cc.
#include "engine/device/attention.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/device.h"

namespace dsj::device {
namespace {

using testing::HasSubstr;

TEST(ChooseAttention, FlashWhereItsKernelsAre) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const int64_t dim : {8, 64, 80, 128, 256})
      EXPECT_TRUE(choose_attention(type, dim, 80).by_rows) << dim;
  }
  EXPECT_THAT(choose_attention(at::kHalf, 64, 120).because, HasSubstr("all rows at once"));
}

TEST(ChooseAttention, ElseTheReasonIsTold) {
  const auto because = [](at::ScalarType type, int64_t dim, int capability) {
    const AttentionChoice choice = choose_attention(type, dim, capability);
    EXPECT_FALSE(choice.by_rows);
    EXPECT_THAT(choice.because, HasSubstr("a call for each run of rows of one length"));
    return choice.because;
  };
  EXPECT_THAT(because(at::kFloat, 64, 90), HasSubstr("no kernel of type Float"));
  EXPECT_THAT(because(at::kHalf, 64, 75), HasSubstr("compute capability 7.5 is below"));
  EXPECT_THAT(because(at::kHalf, 64, 0), HasSubstr("is not known"));
  EXPECT_THAT(because(at::kBFloat16, 20, 90), HasSubstr("a multiple of 8 up to 256, not 20"));
  EXPECT_THAT(because(at::kBFloat16, 264, 90), HasSubstr("not 264"));
  for (const int capability : {86, 89, 120, 121})
    EXPECT_THAT(because(at::kHalf, 208, capability), HasSubstr("no backward for heads of 208"));
}

TEST(ChooseAttention, LargeHeadsWhereABlockHasRoomForThem) {
  for (const int capability : {80, 90, 100, 103})
    EXPECT_TRUE(choose_attention(at::kHalf, 208, capability).by_rows);
  for (const int capability : {86, 89, 120}) {
    EXPECT_TRUE(choose_attention(at::kHalf, 192, capability).by_rows);
    EXPECT_TRUE(choose_attention(at::kHalf, 256, capability).by_rows) << "without dropout";
  }
}

TEST(ChooseAttention, ADeviceGoesByItsCapability) {
  const Device& gpu = of(at::Device(at::kCUDA, 0));
  EXPECT_FALSE(gpu.attention_choice(at::kHalf, 64).by_rows) << "not known yet";
  set_capability(at::kCUDA, 80);
  EXPECT_TRUE(gpu.attention_choice(at::kHalf, 64).by_rows);
  set_capability(at::kCUDA, 0);
  EXPECT_FALSE(of(at::Device(at::kCPU)).attention_choice(at::kHalf, 64).by_rows);
}

TEST(RowAttention, HeadsAreViews) {
  const at::Tensor qkv = at::rand({5, (4 + 2 * 2) * 8}).to(at::kHalf);
  const RowHeads heads = heads_of({.qkv = qkv, .heads = 4, .kv_heads = 2, .dim = 8});
  EXPECT_EQ(heads.q.sizes(), at::IntArrayRef({5, 4, 8}));
  EXPECT_EQ(heads.v.sizes(), at::IntArrayRef({5, 2, 8}));
  for (const at::Tensor& x : {heads.q, heads.k, heads.v}) {
    EXPECT_TRUE(x.is_alias_of(qkv));
    EXPECT_EQ(x.strides(), at::IntArrayRef({64, 8, 1}));
  }
  EXPECT_TRUE(heads.k[3][1].equal(qkv[3].narrow(0, 5 * 8, 8)));
  EXPECT_TRUE(heads.v[3][1].equal(qkv[3].narrow(0, 7 * 8, 8)));
}

}  // namespace
}  // namespace dsj::device
