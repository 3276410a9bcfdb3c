#include "agent/stacks/frame_entries.h"

#include "agent/stacks/frame_registers.h"

namespace dsj::agent {
namespace {

/// More than the entries of real functions, less than what a wrong length could ask for.
constexpr size_t kEntryMost = 64 << 10;
constexpr uint8_t kBaseMask = 0x70, kFromHere = 0x10, kFromTable = 0x30;

}  // namespace

std::unexpected<Error> unknown_frames(const std::string& what) {
  return fail(ErrorKind::Environment, what);
}

std::optional<uint64_t> encoded_address(ByteReader& reader, uint8_t encoding, uint64_t here) {
  uint64_t value = 0;
  switch (encoding & kFrameFormMask) {
    case 0x00:
    case 0x04:
    case 0x0c:
      value = reader.number<uint64_t>();
      break;
    case 0x03:
      value = reader.number<uint32_t>();
      break;
    case 0x0b:
      value = static_cast<uint64_t>(int64_t{reader.number<int32_t>()});
      break;
    default:
      return std::nullopt;
  }
  if ((encoding & kBaseMask) == kFromHere) return value + here;
  return (encoding & ~kFrameFormMask) == 0 ? std::optional(value) : std::nullopt;
}

Result<FrameEntry> read_frame_entry(const ReadImage& image, uint64_t address) {
  const std::string head = image(address, 4);
  ByteReader reader(head);
  const auto length = reader.number<uint32_t>();
  if (!reader.ok() || length < 4 || length > kEntryMost) {
    return unknown_frames("a frame entry of a length that is not known");
  }
  FrameEntry entry{.id_at = address + 4, .bytes = image(address + 4, length)};
  if (entry.bytes.size() != length) return unknown_frames("a frame entry that ends early");
  return entry;
}

Status read_frame_common(const FrameEntry& entry, FrameCommon& common) {
  common.bytes = entry.bytes;
  ByteReader reader(common.bytes);
  if (reader.number<uint32_t>() != 0)
    return unknown_frames("a frame entry without its common part");
  const auto version = reader.number<uint8_t>();
  const std::string_view letters = reader.text();
  common.code_factor = reader.unsigned_leb();
  common.data_factor = reader.signed_leb();
  common.return_register = version == 1 ? reader.number<uint8_t>() : reader.unsigned_leb();
  common.augmented = letters.starts_with('z');
  if ((version != 1 && version != 3) || (!letters.empty() && !common.augmented)) {
    return unknown_frames("frame information of another version");
  }
  if (common.augmented) {
    const uint64_t length = reader.unsigned_leb();
    ByteReader more(reader.take(length));
    for (const char letter : letters.substr(1)) {
      if (letter == 'R') {
        common.encoding = more.number<uint8_t>();
      } else if (letter == 'L') {
        more.skip(1);
      } else if (letter == 'P') {
        const auto encoding = more.number<uint8_t>();
        if (!encoded_address(more, encoding & kFrameFormMask, 0))
          return unknown_frames("a handler that is not known");
      } else if (letter == 'S') {
        common.signal_frame = true;
      } else {
        return unknown_frames("frame information of another kind");
      }
    }
    if (!more.ok()) return unknown_frames("frame information that ends early");
  }
  if (!reader.ok() || common.return_register != kRegisterIp) {
    return unknown_frames("frame information of another processor");
  }
  common.program = std::string_view(common.bytes).substr(reader.at());
  return {};
}

Result<uint64_t> find_frame_entry(const ReadImage& image, uint64_t table, uint64_t address) {
  const std::string head = image(table, 12);
  ByteReader reader(head);
  const auto version = reader.number<uint8_t>();
  const auto pointer = reader.number<uint8_t>(), count = reader.number<uint8_t>();
  const auto rows = reader.number<uint8_t>();
  reader.skip(4);
  const auto size = reader.number<uint32_t>();
  // The only form that linkers write: offsets from the table, in 4 bytes.
  if (!reader.ok() || version != 1 || (pointer & kFrameFormMask) != 0x0b || count != 0x03 ||
      rows != (kFromTable | 0x0b)) {
    return unknown_frames("no table of frames");
  }
  uint64_t low = 0, high = size;  // the first `low` begin at or before the address
  std::optional<uint64_t> found;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const std::string bytes = image(table + 12 + middle * 8, 8);
    ByteReader row(bytes);
    const auto start = row.number<int32_t>(), entry = row.number<int32_t>();
    if (!row.ok()) return unknown_frames("a table of frames that ends early");
    if (table + static_cast<uint64_t>(int64_t{start}) <= address) {
      found = table + static_cast<uint64_t>(int64_t{entry});
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (!found) return unknown_frames("no function there");
  return *found;
}

}  // namespace dsj::agent
