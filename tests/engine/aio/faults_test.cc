// What a device does wrong: short transfers are finished, faults are named, other requests go on.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/aio/memory_raw.h"
#include "engine/aio/requests.h"

namespace dsj::aio {
namespace {

constexpr int64_t kFaultySize = 32 * kAlign;

struct Aligned {
  explicit Aligned(int fill)
      : data(static_cast<std::byte*>(std::aligned_alloc(kAlign, kFaultySize)), &std::free) {
    std::memset(data.get(), fill, kFaultySize);
  }
  std::span<std::byte> span() { return {data.get(), static_cast<size_t>(kFaultySize)}; }
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

std::unique_ptr<ThreadedFile> file_with(RawFault fault, Options options = {}) {
  return std::make_unique<ThreadedFile>(raw_memory(kFaultySize, std::move(fault)), "/disk/file",
                                        kFaultySize, options, "memory");
}

TEST(Faults, ShortTransfersAreFinished) {
  // Every call moves at most 2.5 units: what is cut inside a unit moves again from its start.
  auto file = file_with(
      [](const RawCall& call) { return std::optional(std::min(call.bytes, 5 * kAlign / 2)); });
  Aligned data(3), out(0);
  ASSERT_TRUE(file->wait(file->write(0, data.span())));
  ASSERT_TRUE(file->wait(file->read(0, out.span())));
  EXPECT_EQ(std::memcmp(data.data.get(), out.data.get(), kFaultySize), 0);
}

TEST(Faults, AnInterruptedCallIsMadeAgain) {
  auto file = file_with([](const RawCall& call) {
    return call.number % 2 == 0 ? std::optional<int64_t>(-EINTR) : std::nullopt;
  });
  Aligned data(3);
  EXPECT_TRUE(file->wait(file->write(0, data.span())));
}

TEST(Faults, FullDiskAndDeviceFaultNamePathBytesAndPlace) {
  for (const int number : {ENOSPC, EIO}) {
    auto file = file_with(
        [number](const RawCall& call) {
          return call.write && call.offset == 8 * kAlign ? std::optional<int64_t>(-number)
                                                         : std::nullopt;
        },
        {.block_size = 4 * kAlign});
    Aligned data(3), out(0);
    const Status status = file->wait(file->write(0, data.span()));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::Environment);
    EXPECT_EQ(status.error().where, "/disk/file");
    EXPECT_NE(status.error().message.find("writing 16384 bytes at 32768: " +
                                          std::string(std::strerror(number))),
              std::string::npos)
        << status.error().message;
    EXPECT_TRUE(file->wait(file->read(0, out.span()))) << "other requests go on";
    EXPECT_EQ(out.span()[kFaultySize - 1], std::byte{3}) << "the rest of the request was tried";
  }
}

TEST(Faults, AWriteThatMovesNothingDoesNotSpin) {
  auto file = file_with(
      [](const RawCall& call) { return call.write ? std::optional<int64_t>(0) : std::nullopt; });
  Aligned data(3);
  const Status status = file->wait(file->write(0, data.span()));
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("the device took 0 of them"), std::string::npos);
}

TEST(Advance, GoesOnWhereTheResultEnds) {
  Block block{.ticket = 1, .write = false, .offset = 0, .data = nullptr, .bytes = 4 * kAlign};
  EXPECT_EQ(*advance(block, -EAGAIN, "p"), Next::Again);
  EXPECT_EQ(block.bytes, 4 * kAlign);
  EXPECT_EQ(*advance(block, kAlign + 17, "p"), Next::Again);
  EXPECT_EQ(block.offset, kAlign);
  EXPECT_EQ(block.bytes, 3 * kAlign);
  EXPECT_EQ(*advance(block, 3 * kAlign, "p"), Next::Done);
  const auto ended = advance(block, 100, "p");
  ASSERT_FALSE(ended);
  EXPECT_NE(ended.error().message.find("the file ends at " + std::to_string(kAlign + 100)),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::aio
