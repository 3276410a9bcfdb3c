// Reads numbers out of foreign bytes, front to back. Past the end every read gives 0 and ok() is false
// from then on: a reader of damaged bytes needs one check at its end.
// Tested by: tests/agent/stacks/call_frames_test.cc
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

namespace dsj::agent {

class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return !ok_ || at_ >= bytes_.size(); }
  size_t at() const { return at_; }
  void skip(uint64_t count) { take(count); }

  template <typename T>
  T number() {
    T value{};
    const std::string_view bytes = take(sizeof value);
    if (bytes.size() == sizeof value) std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  /// ULEB128; bits beyond 64 are lost.
  uint64_t unsigned_leb() { return leb().first; }
  /// SLEB128.
  int64_t signed_leb() {
    const auto [value, bits] = leb();
    const bool negative = bits > 0 && bits < 64 && (value >> (bits - 1) & 1) != 0;
    return static_cast<int64_t>(negative ? value | ~uint64_t{0} << bits : value);
  }
  /// Up to a byte 0, which is skipped.
  std::string_view text() {
    const size_t end = ok_ ? bytes_.find('\0', at_) : std::string_view::npos;
    if (end == std::string_view::npos) return ok_ = false, std::string_view();
    const std::string_view result = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return result;
  }
  std::string_view take(uint64_t count) {
    if (!ok_ || count > bytes_.size() - at_) return ok_ = false, std::string_view();
    const std::string_view result = bytes_.substr(at_, count);
    at_ += count;
    return result;
  }

 private:
  std::pair<uint64_t, int> leb() {
    uint64_t value = 0;
    int bits = 0;
    for (bool more = true; more && ok_; bits += 7) {
      const auto byte = number<uint8_t>();
      if (bits < 64) value |= static_cast<uint64_t>(byte & 0x7f) << bits;
      more = (byte & 0x80) != 0;
    }
    return {value, bits};
  }

  std::string_view bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace dsj::agent
