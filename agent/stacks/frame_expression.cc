#include "agent/stacks/frame_expression.h"

#include <vector>

#include "agent/stacks/byte_reader.h"

namespace dsj::agent {
namespace {

constexpr size_t kDeepest = 64;

/// The result of an operation on two values, the upper one second.
std::optional<uint64_t> combine(uint8_t code, uint64_t a, uint64_t b) {
  const auto left = static_cast<int64_t>(a), right = static_cast<int64_t>(b);
  switch (code) {
    case 0x1a:
      return a & b;
    case 0x1c:
      return a - b;
    case 0x1e:
      return a * b;
    case 0x21:
      return a | b;
    case 0x22:
      return a + b;
    case 0x24:
      return b < 64 ? a << b : 0;
    case 0x25:
      return b < 64 ? a >> b : 0;
    case 0x27:
      return a ^ b;
    case 0x29:
      return left == right;
    case 0x2a:
      return left >= right;
    case 0x2b:
      return left > right;
    case 0x2c:
      return left <= right;
    case 0x2d:
      return left < right;
    case 0x2e:
      return left != right;
    default:
      return std::nullopt;
  }
}

/// What operations without operands on the stack put there.
std::optional<uint64_t> constant(uint8_t code, ByteReader& reader,
                                 const FrameRegisters& registers) {
  if (code >= 0x30 && code < 0x50) return code - 0x30U;
  if (code >= 0x70 && code < 0x70 + kFrameRegisters) {
    const auto offset = static_cast<uint64_t>(reader.signed_leb());
    const auto& base = registers[code - 0x70U];
    return base ? std::optional(*base + offset) : std::nullopt;
  }
  const auto widened = [](auto number) { return static_cast<uint64_t>(int64_t{number}); };
  switch (code) {
    case 0x08:
      return reader.number<uint8_t>();
    case 0x09:
      return widened(reader.number<int8_t>());
    case 0x0a:
      return reader.number<uint16_t>();
    case 0x0b:
      return widened(reader.number<int16_t>());
    case 0x0c:
      return reader.number<uint32_t>();
    case 0x0d:
      return widened(reader.number<int32_t>());
    case 0x0e:
    case 0x0f:
      return reader.number<uint64_t>();
    case 0x10:
      return reader.unsigned_leb();
    case 0x11:
      return static_cast<uint64_t>(reader.signed_leb());
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<uint64_t> value_of_expression(std::string_view expression,
                                            std::optional<uint64_t> first,
                                            const FrameRegisters& registers,
                                            const ReadWord& memory) {
  std::vector<uint64_t> stack;
  if (first) stack.push_back(*first);
  ByteReader reader(expression);
  while (!reader.at_end()) {
    const auto code = reader.number<uint8_t>();
    const bool one = code == 0x06 || code == 0x12 || code == 0x13 || code == 0x23;
    if (one) {
      if (stack.empty()) return std::nullopt;
      if (code == 0x06) {
        const auto word = memory(stack.back());
        if (!word) return std::nullopt;
        stack.back() = *word;
      } else if (code == 0x12) {
        stack.push_back(stack.back());
      } else if (code == 0x13) {
        stack.pop_back();
      } else {
        stack.back() += reader.unsigned_leb();
      }
    } else if (const auto value = constant(code, reader, registers)) {
      stack.push_back(*value);
    } else {
      if (stack.size() < 2) return std::nullopt;
      const auto result = combine(code, stack[stack.size() - 2], stack.back());
      if (!result) return std::nullopt;
      stack.pop_back();
      stack.back() = *result;
    }
    if (stack.size() > kDeepest) return std::nullopt;
  }
  if (!reader.ok() || stack.empty()) return std::nullopt;
  return stack.back();
}

}  // namespace dsj::agent
