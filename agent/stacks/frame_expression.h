// DWARF expressions (DWARF 5, section 2.5), as far as frame information has them: sums of registers,
// constants and words of memory. Pure; the bytes are foreign.
// Tested by: tests/agent/stacks/call_frames_test.cc
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "agent/stacks/frame_registers.h"

namespace dsj::agent {

/// `first`: on the expression's stack when it begins. nullopt: an operation that is not known, a stack
/// that is empty, a register or a word that is not known.
std::optional<uint64_t> value_of_expression(std::string_view expression,
                                            std::optional<uint64_t> first,
                                            const FrameRegisters& registers,
                                            const ReadWord& memory);

}  // namespace dsj::agent
