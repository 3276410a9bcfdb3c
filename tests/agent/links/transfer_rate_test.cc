#include "agent/links/link_meter.h"

#include <gtest/gtest.h>

namespace dsj::agent {
namespace {

constexpr int64_t kMiB = 1 << 20;

TEST(TransferRate, OfFewSlicesItIsTheWholeTransfers) {
  EXPECT_EQ(rate_of({.bytes = 1000, .microseconds = 500'000}), 2000);
  EXPECT_EQ(rate_of({.bytes = 2 * kMiB,
                     .microseconds = 1'000'000,
                     .slice_bytes = kMiB,
                     .slices = {1, 999'999}}),
            2 * kMiB);
}

TEST(TransferRate, APauseOfABusyMachineDoesNotCount) {
  Transfer transfer{.bytes = 64 * kMiB, .slice_bytes = kMiB};
  transfer.slices.assign(64, 1000);
  for (int i = 0; i < 20; ++i) transfer.slices[static_cast<size_t>(3 * i)] = 100'000;
  for (const int64_t slice : transfer.slices) transfer.microseconds += slice;
  EXPECT_EQ(rate_of(transfer), 1000 * kMiB);
}

TEST(TransferRate, ASlowLinkIsSlowInEverySlice) {
  Transfer transfer{.bytes = 40 * kMiB, .microseconds = 400'000, .slice_bytes = kMiB};
  transfer.slices.assign(40, 10'000);
  for (int i = 0; i < 6; ++i) transfer.slices[static_cast<size_t>(i)] = 100;  // out of a buffer
  EXPECT_EQ(rate_of(transfer), 100 * kMiB);
}

TEST(TransferRate, NothingIsStillSomething) {
  EXPECT_EQ(rate_of({}), 1);
  EXPECT_EQ(rate_of({.bytes = 0, .microseconds = 500'000}), 1);
  EXPECT_EQ(rate_of({.bytes = 7, .microseconds = 0}), 7'000'000);
}

}  // namespace
}  // namespace dsj::agent
