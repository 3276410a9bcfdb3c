#include "agent/stacks/call_frames.h"

#include <optional>
#include <string_view>

#include "agent/stacks/byte_reader.h"
#include "agent/stacks/frame_expression.h"
#include "agent/stacks/frame_rules.h"

namespace dsj::agent {
namespace {

/// Values of a frame's rules.
class Frame {
 public:
  Frame(const FrameRegisters& registers, const ReadWord& memory)
      : registers_(registers), memory_(memory) {}

  std::optional<uint64_t> of_register(uint64_t number) const {
    return number < kFrameRegisters ? registers_[number] : std::nullopt;
  }
  std::optional<uint64_t> cfa(const FrameRule& rule) const {
    if (rule.kind == FrameRule::Kind::ValueOf) {
      return value_of_expression(rule.expression, std::nullopt, registers_, memory_);
    }
    const auto base =
        rule.kind == FrameRule::Kind::CfaPlus ? of_register(rule.source) : std::nullopt;
    if (!base) return std::nullopt;
    return *base + static_cast<uint64_t>(rule.offset);
  }
  std::optional<uint64_t> value(const FrameRule& rule, int number, uint64_t cfa) const {
    using Kind = FrameRule::Kind;
    const uint64_t beside = cfa + static_cast<uint64_t>(rule.offset);
    switch (rule.kind) {
      case Kind::Same:
        return of_register(static_cast<uint64_t>(number));
      case Kind::Undefined:
        return std::nullopt;
      case Kind::SavedAtCfa:
        return memory_(beside);
      case Kind::CfaPlus:
        return beside;
      case Kind::InRegister:
        return of_register(rule.source);
      case Kind::SavedAt:
      case Kind::ValueOf:
        break;
    }
    const auto result = value_of_expression(rule.expression, cfa, registers_, memory_);
    return result && rule.kind == Kind::SavedAt ? memory_(*result) : result;
  }

 private:
  const FrameRegisters& registers_;
  const ReadWord& memory_;
};

}  // namespace

Result<Caller> caller_of(const ReadImage& image, uint64_t table, uint64_t address,
                         const FrameRegisters& registers, const ReadWord& memory) {
  DSJ_TRY(const uint64_t entry_at, find_frame_entry(image, table, address));
  DSJ_TRY(const FrameEntry entry, read_frame_entry(image, entry_at));
  ByteReader reader(entry.bytes);
  const auto back = reader.number<uint32_t>();
  if (back == 0) return unknown_frames("no function's frame entry");
  DSJ_TRY(const FrameEntry common_entry, read_frame_entry(image, entry.id_at - back));
  FrameCommon common;
  DSJ_TRY_STATUS(read_frame_common(common_entry, common));
  const auto start = encoded_address(reader, common.encoding, entry.id_at + reader.at());
  const auto length = encoded_address(reader, common.encoding & kFrameFormMask, 0);
  if (!reader.ok() || common.encoding == kFrameOmitted || !start || !length) {
    return unknown_frames("a function's addresses in a form that is not known");
  }
  if (address < *start || address - *start >= *length) return unknown_frames("no function there");
  if (common.augmented) reader.skip(reader.unsigned_leb());
  FrameProgram program(common, *start, address);
  bool known = program.run(common.program, 0);
  program.common_ends();
  const size_t behind = reader.at();
  known = known && reader.ok() &&
          program.run(std::string_view(entry.bytes).substr(behind), entry.id_at + behind);
  if (!known) return unknown_frames("a frame instruction that is not known");

  const Frame frame(registers, memory);
  const FrameRow& row = program.row();
  Caller caller{.signal_frame = common.signal_frame};
  if (row.registers[kRegisterIp].kind == FrameRule::Kind::Undefined) {
    caller.outermost = true;
    return caller;
  }
  const auto cfa = frame.cfa(row.cfa);
  if (!cfa) return unknown_frames("a register that is not known is needed");
  for (int number = 0; number < kFrameRegisters; ++number) {
    caller.registers[number] = frame.value(row.registers[number], number, *cfa);
  }
  if (row.registers[kRegisterSp].kind == FrameRule::Kind::Same) caller.registers[kRegisterSp] = cfa;
  if (!caller.registers[kRegisterIp]) return unknown_frames("the stack cannot be read");
  caller.outermost = *caller.registers[kRegisterIp] == 0;
  return caller;
}

}  // namespace dsj::agent
