// The registers of a function's frame, as far as they are known.
// Tested by: tests/agent/stacks/call_frames_test.cc
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

namespace dsj::agent {

/// DWARF's numbers of the registers of x86-64 (System V ABI, figure 3.36). The last is the address of
/// the instruction; in a caller's frame, the one behind its call.
inline constexpr int kFrameRegisters = 17;
inline constexpr int kRegisterBp = 6, kRegisterSp = 7, kRegisterIp = 16;

/// nullopt: not known.
using FrameRegisters = std::array<std::optional<uint64_t>, kFrameRegisters>;

/// The word at an address of the process; nullopt: it cannot be read.
using ReadWord = std::function<std::optional<uint64_t>(uint64_t address)>;

}  // namespace dsj::agent
