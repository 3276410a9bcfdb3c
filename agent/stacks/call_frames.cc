#include "agent/stacks/call_frames.h"

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "agent/stacks/byte_reader.h"
#include "agent/stacks/frame_expression.h"

namespace dsj::agent {
namespace {

/// More than the entries of real functions, less than what a wrong length could ask for.
constexpr size_t kEntryMost = 64 << 10;
constexpr size_t kRememberedMost = 64;

// Encodings of addresses (LSB Core, 10.5.1): form in the low bits, base above.
constexpr uint8_t kOmitted = 0xff, kFormMask = 0x0f, kBaseMask = 0x70, kFromHere = 0x10,
                  kFromTable = 0x30;

std::unexpected<Error> unknown(const std::string& what) {
  return fail(ErrorKind::Environment, what);
}

/// One register of the caller, or the canonical frame address (CFA), which is its stack pointer.
struct Rule {
  enum class Kind { Same, Undefined, SavedAtCfa, CfaPlus, InRegister, SavedAt, ValueOf } kind{};
  int64_t offset = 0;           ///< from the CFA; of the CFA itself: from `source`
  uint64_t source = 0;          ///< a register
  std::string_view expression;  ///< SavedAt, ValueOf
};

struct Row {
  Rule cfa{.kind = Rule::Kind::Undefined};
  std::array<Rule, kFrameRegisters> registers;
};

/// An encoded address. `here`: the address of its first byte.
std::optional<uint64_t> encoded(ByteReader& reader, uint8_t encoding, uint64_t here) {
  uint64_t value = 0;
  switch (encoding & kFormMask) {
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
  return (encoding & ~kFormMask) == 0 ? std::optional(value) : std::nullopt;
}

/// A length and what follows it: a CIE or an FDE.
struct Entry {
  uint64_t id_at = 0;  ///< address of the field behind the length
  std::string bytes;   ///< from there on
};

Result<Entry> read_entry(const ReadImage& image, uint64_t address) {
  const std::string head = image(address, 4);
  ByteReader reader(head);
  const auto length = reader.number<uint32_t>();
  if (!reader.ok() || length < 4 || length > kEntryMost) {
    return unknown("a frame entry of a length that is not known");
  }
  Entry entry{.id_at = address + 4, .bytes = image(address + 4, length)};
  if (entry.bytes.size() != length) return unknown("a frame entry that ends early");
  return entry;
}

/// What functions have in common.
struct Common {
  std::string bytes;
  std::string_view program;  ///< of `bytes`
  uint64_t code_factor = 1;
  int64_t data_factor = 1;
  uint64_t return_register = 0;
  uint8_t encoding = 0;
  bool augmented = false, signal_frame = false;
};

Status read_common(const Entry& entry, Common& common) {
  common.bytes = entry.bytes;
  ByteReader reader(common.bytes);
  if (reader.number<uint32_t>() != 0) return unknown("a frame entry without its common part");
  const auto version = reader.number<uint8_t>();
  const std::string_view letters = reader.text();
  common.code_factor = reader.unsigned_leb();
  common.data_factor = reader.signed_leb();
  common.return_register = version == 1 ? reader.number<uint8_t>() : reader.unsigned_leb();
  common.augmented = letters.starts_with('z');
  if ((version != 1 && version != 3) || (!letters.empty() && !common.augmented)) {
    return unknown("frame information of another version");
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
        if (!encoded(more, encoding & kFormMask, 0)) return unknown("a handler that is not known");
      } else if (letter == 'S') {
        common.signal_frame = true;
      } else {
        return unknown("frame information of another kind");
      }
    }
    if (!more.ok()) return unknown("frame information that ends early");
  }
  if (!reader.ok() || common.return_register != kRegisterIp) {
    return unknown("frame information of another processor");
  }
  common.program = std::string_view(common.bytes).substr(reader.at());
  return {};
}

/// The rules at one address of a function.
class Program {
 public:
  Program(const Common& common, uint64_t start, uint64_t wanted)
      : common_(common), at_(start), wanted_(wanted) {}

  /// Runs until the address is reached. False: an instruction is not known.
  bool run(std::string_view program, uint64_t program_at) {
    ByteReader reader(program);
    while (!reader.at_end() && at_ <= wanted_) {
      if (!step(reader, program_at)) return false;
    }
    return reader.ok();
  }
  void common_ends() { initial_ = row_; }
  const Row& row() const { return row_; }

 private:
  using Kind = Rule::Kind;

  void set(uint64_t number, const Rule& rule) {
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

  bool step(ByteReader& reader, uint64_t program_at) {
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

  bool step_place(uint8_t code, ByteReader& reader, uint64_t program_at) {
    switch (code) {
      case 0x00:
        return true;
      case 0x01: {
        const auto to = encoded(reader, common_.encoding, program_at + reader.at());
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
        return set(number, {.kind = Kind::SavedAtCfa, .offset = scaled(reader.unsigned_leb())}),
               true;
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

  bool step_rule(uint8_t code, ByteReader& reader) {
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

  const Common& common_;
  uint64_t at_;
  const uint64_t wanted_;
  Row row_, initial_;
  std::vector<Row> remembered_;
};

/// The entry of the function that holds `address`: the last in the sorted table that does not begin
/// behind it.
Result<uint64_t> find_entry(const ReadImage& image, uint64_t table, uint64_t address) {
  const std::string head = image(table, 12);
  ByteReader reader(head);
  const auto version = reader.number<uint8_t>();
  const auto pointer = reader.number<uint8_t>(), count = reader.number<uint8_t>();
  const auto rows = reader.number<uint8_t>();
  reader.skip(4);
  const auto size = reader.number<uint32_t>();
  // The only form that linkers write: offsets from the table, in 4 bytes.
  if (!reader.ok() || version != 1 || (pointer & kFormMask) != 0x0b || count != 0x03 ||
      rows != (kFromTable | 0x0b)) {
    return unknown("no table of frames");
  }
  uint64_t low = 0, high = size;  // the first `low` begin at or before the address
  std::optional<uint64_t> found;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    const std::string bytes = image(table + 12 + middle * 8, 8);
    ByteReader row(bytes);
    const auto start = row.number<int32_t>(), entry = row.number<int32_t>();
    if (!row.ok()) return unknown("a table of frames that ends early");
    if (table + static_cast<uint64_t>(int64_t{start}) <= address) {
      found = table + static_cast<uint64_t>(int64_t{entry});
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (!found) return unknown("no function there");
  return *found;
}

/// Values of a frame's rules.
class Frame {
 public:
  Frame(const FrameRegisters& registers, const ReadWord& memory)
      : registers_(registers), memory_(memory) {}

  std::optional<uint64_t> of_register(uint64_t number) const {
    return number < kFrameRegisters ? registers_[number] : std::nullopt;
  }
  std::optional<uint64_t> cfa(const Rule& rule) const {
    if (rule.kind == Rule::Kind::ValueOf) {
      return value_of_expression(rule.expression, std::nullopt, registers_, memory_);
    }
    const auto base = rule.kind == Rule::Kind::CfaPlus ? of_register(rule.source) : std::nullopt;
    if (!base) return std::nullopt;
    return *base + static_cast<uint64_t>(rule.offset);
  }
  std::optional<uint64_t> value(const Rule& rule, int number, uint64_t cfa) const {
    using Kind = Rule::Kind;
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
  DSJ_TRY(const uint64_t entry_at, find_entry(image, table, address));
  DSJ_TRY(const Entry entry, read_entry(image, entry_at));
  ByteReader reader(entry.bytes);
  const auto back = reader.number<uint32_t>();
  if (back == 0) return unknown("no function's frame entry");
  DSJ_TRY(const Entry common_entry, read_entry(image, entry.id_at - back));
  Common common;
  DSJ_TRY_STATUS(read_common(common_entry, common));
  const auto start = encoded(reader, common.encoding, entry.id_at + reader.at());
  const auto length = encoded(reader, common.encoding & kFormMask, 0);
  if (!reader.ok() || common.encoding == kOmitted || !start || !length) {
    return unknown("a function's addresses in a form that is not known");
  }
  if (address < *start || address - *start >= *length) return unknown("no function there");
  if (common.augmented) reader.skip(reader.unsigned_leb());
  Program program(common, *start, address);
  bool known = program.run(common.program, 0);
  program.common_ends();
  const size_t behind = reader.at();
  known = known && reader.ok() &&
          program.run(std::string_view(entry.bytes).substr(behind), entry.id_at + behind);
  if (!known) return unknown("a frame instruction that is not known");

  const Frame frame(registers, memory);
  const Row& row = program.row();
  Caller caller{.signal_frame = common.signal_frame};
  if (row.registers[kRegisterIp].kind == Rule::Kind::Undefined) {
    caller.outermost = true;
    return caller;
  }
  const auto cfa = frame.cfa(row.cfa);
  if (!cfa) return unknown("a register that is not known is needed");
  for (int number = 0; number < kFrameRegisters; ++number) {
    caller.registers[number] = frame.value(row.registers[number], number, *cfa);
  }
  if (row.registers[kRegisterSp].kind == Rule::Kind::Same) caller.registers[kRegisterSp] = cfa;
  if (!caller.registers[kRegisterIp]) return unknown("the stack cannot be read");
  caller.outermost = *caller.registers[kRegisterIp] == 0;
  return caller;
}

}  // namespace dsj::agent
