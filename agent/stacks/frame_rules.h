// The rules that say where a caller's registers are, and the program of frame instructions that makes
// them for one address (DWARF 5, section 6.4). Pure.
// Tested by: tests/agent/stacks/call_frames_test.cc
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "agent/stacks/frame_entries.h"
#include "agent/stacks/frame_registers.h"

namespace dsj::agent {

/// One register of the caller, or the canonical frame address (CFA), which is its stack pointer.
struct FrameRule {
  enum class Kind { Same, Undefined, SavedAtCfa, CfaPlus, InRegister, SavedAt, ValueOf } kind{};
  int64_t offset = 0;           ///< from the CFA; of the CFA itself: from `source`
  uint64_t source = 0;          ///< a register
  std::string_view expression;  ///< SavedAt, ValueOf
};

struct FrameRow {
  FrameRule cfa{.kind = FrameRule::Kind::Undefined};
  std::array<FrameRule, kFrameRegisters> registers;
};

/// The rules at one address of a function.
class FrameProgram {
 public:
  FrameProgram(const FrameCommon& common, uint64_t start, uint64_t wanted)
      : common_(common), at_(start), wanted_(wanted) {}

  /// Runs until the address is reached. False: an instruction is not known.
  bool run(std::string_view program, uint64_t program_at);
  void common_ends() { initial_ = row_; }
  const FrameRow& row() const { return row_; }

 private:
  using Kind = FrameRule::Kind;

  void set(uint64_t number, const FrameRule& rule) {
    if (number < kFrameRegisters) row_.registers[number] = rule;
  }
  void restore(uint64_t number) {
    if (number < kFrameRegisters) row_.registers[number] = initial_.registers[number];
  }
  int64_t scaled(uint64_t offset) const {
    return static_cast<int64_t>(offset * static_cast<uint64_t>(common_.data_factor));
  }
  /// The row holds for all addresses below the new one.
  void advance(uint64_t count) { at_ += count * common_.code_factor; }

  bool step(ByteReader& reader, uint64_t program_at);
  bool step_place(uint8_t code, ByteReader& reader, uint64_t program_at);
  bool step_rule(uint8_t code, ByteReader& reader);

  const FrameCommon& common_;
  uint64_t at_;
  const uint64_t wanted_;
  FrameRow row_, initial_;
  std::vector<FrameRow> remembered_;
};

}  // namespace dsj::agent
