// The entries of .eh_frame and the sorted table that leads to them, .eh_frame_hdr (Linux Standard Base
// Core, 10.6). Pure; the bytes are foreign, and wrong ones end in an error.
// Tested by: tests/agent/stacks/call_frames_test.cc
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/stacks/byte_reader.h"
#include "common/result.h"

namespace dsj::agent {

/// Up to `most` bytes at an address of a file's own numbering; fewer where they end.
using ReadImage = std::function<std::string(uint64_t address, size_t most)>;

// Encodings of addresses (LSB Core, 10.5.1): form in the low bits, base above.
constexpr uint8_t kFrameOmitted = 0xff, kFrameFormMask = 0x0f;

/// An encoded address. `here`: the address of its first byte. Nothing for an encoding that is not known.
std::optional<uint64_t> encoded_address(ByteReader& reader, uint8_t encoding, uint64_t here);

/// A length and what follows it: a CIE or an FDE.
struct FrameEntry {
  uint64_t id_at = 0;  ///< address of the field behind the length
  std::string bytes;   ///< from there on
};

/// What functions have in common: a CIE.
struct FrameCommon {
  std::string bytes;
  std::string_view program;  ///< of `bytes`
  uint64_t code_factor = 1;
  int64_t data_factor = 1;
  uint64_t return_register = 0;
  uint8_t encoding = 0;
  bool augmented = false, signal_frame = false;
};

/// The error of frame information that this reader cannot use.
std::unexpected<Error> unknown_frames(const std::string& what);
/// Address of the entry of the function that holds `address`: the last in the sorted table that does not
/// begin behind it.
Result<uint64_t> find_frame_entry(const ReadImage& image, uint64_t table, uint64_t address);
Result<FrameEntry> read_frame_entry(const ReadImage& image, uint64_t address);
/// `common.program` is a view of `common.bytes`: the caller keeps it in place.
Status read_frame_common(const FrameEntry& entry, FrameCommon& common);

}  // namespace dsj::agent
