// How to get from a function on a thread's stack to its caller, by the call frame information that
// compilers write for x86-64: DWARF 5, section 6.4, in the form of the Linux Standard Base (.eh_frame
// and its table .eh_frame_hdr). Pure; the bytes are foreign, and wrong ones end in an error.
#pragma once

#include <cstdint>

#include "agent/stacks/frame_entries.h"
#include "agent/stacks/frame_registers.h"
#include "common/result.h"

namespace dsj::agent {

/// A caller's registers, or the end of the stack.
struct Caller {
  FrameRegisters registers;
  bool outermost = false;     ///< there is none: the function was not called by one
  bool signal_frame = false;  ///< a signal interrupted the caller: its address is exact
};

/// `table`: the address of .eh_frame_hdr. `address`: of an instruction of the function, in the file's
/// numbering. `registers`: in the function. Environment: no frame information for it, or of a form that is
/// not known; or a register that is not known is needed.
Result<Caller> caller_of(const ReadImage& image, uint64_t table, uint64_t address,
                         const FrameRegisters& registers, const ReadWord& memory);

}  // namespace dsj::agent
