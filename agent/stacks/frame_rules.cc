#include "agent/stacks/frame_rules.h"

#include <optional>

namespace dsj::agent {
namespace {

constexpr size_t kRememberedMost = 64;  // more than real functions nest

}  // namespace

bool FrameProgram::run(std::string_view program, uint64_t program_at) {
  ByteReader reader(program);
  while (!reader.at_end() && at_ <= wanted_) {
    if (!step(reader, program_at)) return false;
  }
  return reader.ok();
}

bool FrameProgram::step(ByteReader& reader, uint64_t program_at) {
  const auto code = reader.number<uint8_t>();
  const uint64_t low = code & 0x3f;
  switch (code & 0xc0) {
    case 0x40:
      advance(low);
      return true;
    case 0x80:
      set(low, {.kind = Kind::SavedAtCfa, .offset = scaled(reader.unsigned_leb())});
      return true;
    case 0xc0:
      restore(low);
      return true;
    default:
      return code < 0x0c ? step_place(code, reader, program_at) : step_rule(code, reader);
  }
}

bool FrameProgram::step_place(uint8_t code, ByteReader& reader, uint64_t program_at) {
  switch (code) {
    case 0x00:
      return true;
    case 0x01: {
      const auto to = encoded_address(reader, common_.encoding, program_at + reader.at());
      if (to) at_ = *to;
      return to.has_value();
    }
    case 0x02:
      return advance(reader.number<uint8_t>()), true;
    case 0x03:
      return advance(reader.number<uint16_t>()), true;
    case 0x04:
      return advance(reader.number<uint32_t>()), true;
    case 0x05: {
      const uint64_t number = reader.unsigned_leb();
      return set(number, {.kind = Kind::SavedAtCfa, .offset = scaled(reader.unsigned_leb())}), true;
    }
    case 0x06:
      return restore(reader.unsigned_leb()), true;
    case 0x07:
      return set(reader.unsigned_leb(), {.kind = Kind::Undefined}), true;
    case 0x08:
      return set(reader.unsigned_leb(), {.kind = Kind::Same}), true;
    case 0x09: {
      const uint64_t number = reader.unsigned_leb();
      return set(number, {.kind = Kind::InRegister, .source = reader.unsigned_leb()}), true;
    }
    case 0x0a:
      if (remembered_.size() >= kRememberedMost) return false;
      return remembered_.push_back(row_), true;
    default:  // 0x0b
      if (remembered_.empty()) return false;
      row_ = remembered_.back();
      return remembered_.pop_back(), true;
  }
}

bool FrameProgram::step_rule(uint8_t code, ByteReader& reader) {
  switch (code) {
    case 0x0c:
    case 0x12: {
      const uint64_t source = reader.unsigned_leb();
      const int64_t offset = code == 0x0c ? static_cast<int64_t>(reader.unsigned_leb())
                                          : scaled(static_cast<uint64_t>(reader.signed_leb()));
      row_.cfa = {.kind = Kind::CfaPlus, .offset = offset, .source = source};
      return true;
    }
    case 0x0d:
      row_.cfa.source = reader.unsigned_leb();
      return row_.cfa.kind == Kind::CfaPlus;
    case 0x0e:
      row_.cfa.offset = static_cast<int64_t>(reader.unsigned_leb());
      return row_.cfa.kind == Kind::CfaPlus;
    case 0x13:
      row_.cfa.offset = scaled(static_cast<uint64_t>(reader.signed_leb()));
      return row_.cfa.kind == Kind::CfaPlus;
    case 0x0f: {
      const uint64_t length = reader.unsigned_leb();
      row_.cfa = {.kind = Kind::ValueOf, .expression = reader.take(length)};
      return true;
    }
    case 0x10:
    case 0x16: {
      const uint64_t number = reader.unsigned_leb(), length = reader.unsigned_leb();
      set(number, {.kind = code == 0x10 ? Kind::SavedAt : Kind::ValueOf,
                   .expression = reader.take(length)});
      return true;
    }
    case 0x11:
    case 0x14:
    case 0x15: {
      const uint64_t number = reader.unsigned_leb();
      const int64_t offset = code == 0x14 ? scaled(reader.unsigned_leb())
                                          : scaled(static_cast<uint64_t>(reader.signed_leb()));
      set(number, {.kind = code == 0x11 ? Kind::SavedAtCfa : Kind::CfaPlus, .offset = offset});
      return true;
    }
    case 0x2e:  // the size of a call's arguments
      reader.unsigned_leb();
      return true;
    default:
      return false;
  }
}

}  // namespace dsj::agent
