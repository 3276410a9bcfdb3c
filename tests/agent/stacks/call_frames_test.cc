// Frame information: of this test's own program, damaged, and expressions written by hand. Whole stacks:
// process_stacks_test.cc.
#include "agent/stacks/call_frames.h"

#include <gtest/gtest.h>
#include <link.h>

#include <random>

#include "agent/stacks/byte_reader.h"
#include "agent/stacks/frame_expression.h"
#include "agent/stacks/program_file.h"

namespace dsj::agent {
namespace {

using namespace std::string_literals;

std::optional<uint64_t> own_memory(uint64_t address) {
  uint64_t word;
  std::memcpy(&word, reinterpret_cast<const void*>(address), sizeof word);
  return word;
}

/// A call in the middle of this program: its file, where it is, and the stack at that place.
struct Here {
  Here() {
    asm volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
                 : "=r"(ip), "=r"(sp), "=r"(bp));
    dl_iterate_phdr(
        [](dl_phdr_info* object, size_t, void* result) {
          *static_cast<uint64_t*>(result) = object->dlpi_addr;
          return 1;
        },
        &bias);
    registers[kRegisterIp] = ip;
    registers[kRegisterSp] = sp;
    registers[kRegisterBp] = bp;
  }
  uint64_t ip = 0, sp = 0, bp = 0, bias = 0;
  FrameRegisters registers{};
};

TEST(CallFrames, DamagedOnesAreAnErrorOrAnotherFrameAndNeverMore) {
  const auto file = ProgramFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const Here here;
  const ReadImage whole = [&](uint64_t at, size_t most) { return file->read(at, most); };
  // A damaged frame may name any address; of this test's memory it sees its stack alone.
  const ReadWord memory = [&](uint64_t at) {
    return at >= here.sp && at < here.sp + 512 ? own_memory(at) : std::nullopt;
  };
  std::mt19937 random(7);
  int wrong = 0;
  for (int round = 0; round < 20'000; ++round) {
    const ReadImage damaged = [&](uint64_t at, size_t most) {
      std::string bytes = whole(at, most);
      // Not the steps of the search: their damage only finds another function.
      if (!bytes.empty() && most != 8) {
        bytes[random() % std::min<size_t>(bytes.size(), 48)] = static_cast<char>(random());
      }
      if (random() % 16 == 0) bytes.resize(bytes.size() / 2);
      return bytes;
    };
    wrong += !caller_of(damaged, file->frame_table(), here.ip - here.bias, here.registers, memory);
  }
  EXPECT_GT(wrong, 1000);
}

TEST(CallFrames, WhereNoFunctionIsIsAnError) {
  const auto file = ProgramFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const ReadImage whole = [&](uint64_t at, size_t most) { return file->read(at, most); };
  const auto none = caller_of(whole, file->frame_table(), 1, {}, own_memory);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no function there");
  EXPECT_EQ(caller_of(whole, 0, 1, {}, own_memory).error().message, "no table of frames");
}

TEST(CallFrames, ARegisterThatIsNotKnownIsAnError) {
  const auto file = ProgramFile::open("/proc/self/exe");
  ASSERT_TRUE(file);
  const Here here;
  const ReadImage whole = [&](uint64_t at, size_t most) { return file->read(at, most); };
  const auto caller = caller_of(whole, file->frame_table(), here.ip - here.bias, {}, own_memory);
  ASSERT_FALSE(caller);
  EXPECT_EQ(caller.error().message, "a register that is not known is needed");
}

std::optional<uint64_t> value(const std::string& expression, const FrameRegisters& registers = {},
                              std::optional<uint64_t> first = {}) {
  return value_of_expression(expression, first, registers,
                             [](uint64_t at) { return std::optional(at + 1000); });
}

TEST(FrameExpression, OfALinkageTableCountsTheStubsPushes) {
  // The expression that linkers write for .plt: sp + 8 + ((ip & 15) >= 11) * 8.
  const std::string plt = "\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22"s;
  FrameRegisters registers{};
  registers[kRegisterSp] = 4096;
  registers[kRegisterIp] = 0x100a;
  EXPECT_EQ(value(plt, registers), 4096 + 8);
  registers[kRegisterIp] = 0x100b;
  EXPECT_EQ(value(plt, registers), 4096 + 16);
  registers[kRegisterIp] = std::nullopt;
  EXPECT_EQ(value(plt, registers), std::nullopt);
}

TEST(FrameExpression, KnowsItsOperations) {
  EXPECT_EQ(value("\x08\xff"s), 255);
  EXPECT_EQ(value("\x09\xff"s), ~uint64_t{0});
  EXPECT_EQ(value("\x10\x80\x01"s), 128);
  EXPECT_EQ(value("\x11\x7f"s), ~uint64_t{0});
  EXPECT_EQ(value("\x35\x06"s), 1005) << "a word of memory";
  EXPECT_EQ(value("\x35\x23\x10"s), 21);
  EXPECT_EQ(value("\x35\x12\x1e"s), 25);
  EXPECT_EQ(value("\x35\x31\x1c"s), 4);
  EXPECT_EQ(value("\x35\x31\x13"s), 5);
  EXPECT_EQ(value("\x31\x22"s, {}, 41), 42) << "on top of what is there";
  for (const auto& wrong : {""s, "\x22"s, "\x31\x22"s, "\x0e\x01"s, "\x03"s, "\xff"s, "\x06"s}) {
    EXPECT_EQ(value(wrong), std::nullopt) << testing::PrintToString(wrong);
  }
  EXPECT_EQ(value(std::string(1000, '\x31')), std::nullopt) << "too deep";
}

TEST(ByteReader, StopsAtTheEndForGood) {
  const std::string bytes = "\x01\x02\x03";
  ByteReader reader(bytes);
  EXPECT_EQ(reader.number<uint16_t>(), 0x0201);
  EXPECT_EQ(reader.number<uint16_t>(), 0);
  EXPECT_FALSE(reader.ok());
  EXPECT_EQ(reader.number<uint8_t>(), 0) << "although a byte is left";
  const std::string words = "ab\0c"s, endless(20, '\x80');
  EXPECT_EQ(ByteReader(words).text(), "ab");
  EXPECT_FALSE([] {
    ByteReader open("ab");
    open.text();
    return open.ok();
  }());
  EXPECT_EQ(ByteReader(endless).unsigned_leb(), 0u);
}

}  // namespace
}  // namespace dsj::agent
