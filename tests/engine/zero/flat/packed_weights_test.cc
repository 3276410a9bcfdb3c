// A flat's weights in 4 bits: every way to unpack them gives the numbers of engine/optim/four_bit.h (which are
// bitsandbytes', by its own test), in every type; and what they hold is what the plan says.
#include "engine/zero/flat/packed_weights.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/memory/counting_allocator.h"
#include "engine/optim/four_bit.h"

namespace dsj::zero {
namespace {

using layout::Packing;
using memory::Class;

/// Longer than a piece that is read or unpacked at a time, odd, stacked with its neighbour, one number.
layout::FlatLayout flat_of_all_sizes(Packing packing) {
  std::vector<layout::Parameter> all;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{64, 32}, {96, 32}, {2100, 2000}, {17, 33}, {1}, {300, 64}})
    all.push_back({.name = "p" + std::to_string(all.size()),
                   .shape = shape,
                   .frozen = true,
                   .packing = packing});
  return {"f", all, 1, int64_t{1} << 40, layout::kPackedBlock};
}

/// The same numbers for a parameter whichever part is asked for.
Status drawn(const std::string& name, int64_t first, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t x = (static_cast<uint64_t>(first) + i + 1) * 0x9e3779b97f4a7c15 + name.back();
    x ^= x >> 29, x *= 0xbf58476d1ce4e5b9, x ^= x >> 32;
    const float unit = static_cast<float>(x % 100003) / 50001 - 1;
    out[i] = unit * unit * unit * (x >> 40 & 15 ? 0.02f : 0.5f);
  }
  return {};
}

/// One parameter by the codec alone.
at::Tensor by_the_codec(const layout::Slot& slot, Packing packing) {
  std::vector<float> numbers(static_cast<size_t>(slot.numel));
  EXPECT_TRUE(drawn(slot.name, 0, numbers));
  std::vector<uint8_t> codes(numbers.size() / 2 + 1);
  std::vector<float> scales;
  for (int64_t at = 0; at < slot.numel; at += 64) {
    const int64_t n = std::min<int64_t>(64, slot.numel - at);
    scales.push_back(optim::pack_nf4(&numbers[size_t(at)], n, n == 64, &codes[size_t(at / 2)]));
  }
  const auto blocks = static_cast<int64_t>(scales.size());
  if (packing == Packing::Nf4TwoLevels) {
    const float mean = optim::mean_of_scales(scales.data(), blocks);
    for (int64_t at = 0; at < blocks; at += 256) {
      std::vector<uint8_t> of_group(256);
      const int64_t n = std::min<int64_t>(256, blocks - at);
      const float group = optim::pack_scales(optim::DynamicMap::with_sign(), &scales[size_t(at)], n,
                                             mean, of_group.data());
      for (int64_t i = 0; i < n; ++i)
        scales[size_t(at + i)] =
            optim::unpacked_scale(optim::DynamicMap::with_sign(), group, mean, of_group[size_t(i)]);
    }
  }
  at::Tensor out = at::empty({slot.numel}, at::kFloat);
  for (int64_t at = 0; at < slot.numel; at += 64)
    optim::unpack_nf4(scales[size_t(at / 64)], &codes[size_t(at / 2)],
                      std::min<int64_t>(64, slot.numel - at), out.data_ptr<float>() + at);
  return out.view(slot.shape);
}

TEST(PackedWeights, EveryWayToUnpackGivesTheSameBits) {
  for (const Packing packing : {Packing::Nf4, Packing::Nf4TwoLevels}) {
    const auto flat = flat_of_all_sizes(packing);
    std::vector<at::Tensor> want;
    for (const auto& slot : flat.slots()) want.push_back(by_the_codec(slot, packing));
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      PackedWeights weights(flat, type, at::kCPU);
      ASSERT_TRUE(weights.fill(drawn));
      for (int slot = 0; slot < static_cast<int>(want.size()); ++slot) {
        const at::Tensor rounded = want[static_cast<size_t>(slot)].to(type);
        EXPECT_TRUE(weights.weight(slot, 1).equal(rounded)) << slot << " " << type;
        EXPECT_TRUE(weights.weight_by_expression(slot, 1).equal(rounded)) << slot << " " << type;
      }
      const at::Tensor both = at::cat({want[0], want[1]}).to(type);
      EXPECT_TRUE(weights.weight(0, 2).equal(both));
      EXPECT_TRUE(weights.weight_by_expression(0, 2).equal(both));
      EXPECT_FALSE(weights.weight(3, 2).defined()) << "padding lies between";
    }
  }
}

TEST(PackedWeights, WhatIsReadIsReadOnceInPiecesAndNoMoreIsWhole) {
  const auto flat = flat_of_all_sizes(Packing::Nf4TwoLevels);
  memory::install();
  memory::Ledger ledger;
  memory::MemoryScope scope(Class::Activations, ledger);
  PackedWeights weights(flat, at::kBFloat16, at::kCPU);
  const auto packed = layout::packed_bytes(flat);
  EXPECT_EQ(ledger.live(Class::Parameters), packed.codes + packed.scales);
  std::map<std::string, int64_t> next;
  ASSERT_TRUE(weights.fill([&](const std::string& name, int64_t first, std::span<float> out) {
    EXPECT_EQ(first, next[name]);
    EXPECT_LE(out.size(), size_t{1} << 20);
    next[name] += static_cast<int64_t>(out.size());
    return drawn(name, first, out);
  }));
  for (const auto& slot : flat.slots()) EXPECT_EQ(next[slot.name], slot.numel) << slot.name;
  // The largest weight has 16.8 MB in fp32.
  EXPECT_LT(ledger.peak(Class::Buckets), 6 << 20);
  EXPECT_EQ(ledger.live(Class::Buckets), 0);
  {
    const at::Tensor one = weights.weight(2, 1);
    EXPECT_EQ(ledger.live(Class::Buckets), 2 * 2100 * 2000);
  }
  EXPECT_EQ(ledger.live(Class::Buckets), 0);
  EXPECT_EQ(ledger.live(), packed.codes + packed.scales);
}

TEST(PackedWeights, AnErrorOfTheReaderIsTheErrorOfTheFill) {
  const auto flat = flat_of_all_sizes(Packing::Nf4);
  PackedWeights weights(flat, at::kFloat, at::kCPU);
  const auto filled =
      weights.fill([](const std::string& name, int64_t, std::span<float>) -> Status {
        if (name == "p2") return bad_input("is cut short", name);
        return {};
      });
  ASSERT_FALSE(filled);
  EXPECT_EQ(filled.error().where, "p2");
}

}  // namespace
}  // namespace dsj::zero
