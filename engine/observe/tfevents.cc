#include "engine/observe/tfevents.h"

#include <array>
#include <bit>
#include <cstring>

namespace dsj::observe {
namespace {

constexpr std::array<uint32_t, 256> crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0u);
    table[i] = crc;
  }
  return table;
}

template <typename Number>
void append_little(std::string& out, Number number) {
  for (size_t byte = 0; byte < sizeof number; ++byte) {
    out += static_cast<char>(number >> (8 * byte) & 0xff);
  }
}

uint32_t masked(uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8u;
}

// ---- protocol buffers: a key is field number x 8 + wire type

void varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void key(std::string& out, int field, int wire_type) {
  varint(out, static_cast<uint64_t>(field * 8 + wire_type));
}
void int_field(std::string& out, int field, int64_t value) {
  key(out, field, 0);
  varint(out, static_cast<uint64_t>(value));
}
void double_field(std::string& out, int field, double value) {
  key(out, field, 1);
  append_little(out, std::bit_cast<uint64_t>(value));
}
void float_field(std::string& out, int field, float value) {
  key(out, field, 5);
  append_little(out, std::bit_cast<uint32_t>(value));
}
void bytes_field(std::string& out, int field, std::string_view bytes) {
  key(out, field, 2);
  varint(out, bytes.size());
  out += bytes;
}

// Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7.
std::string event(double seconds) {
  std::string out;
  double_field(out, 1, seconds);
  return out;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc_table();
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view message) {
  std::string frame;
  append_little(frame, static_cast<uint64_t>(message.size()));
  append_little(frame, masked(crc32c(frame)));
  frame += message;
  append_little(frame, masked(crc32c(message)));
  return frame;
}

std::string version_event(double seconds) {
  std::string out = event(seconds);
  bytes_field(out, 3, "brain.Event:2");
  return out;
}

std::string restart_event(double seconds, int64_t x) {
  std::string log, out = event(seconds);
  int_field(log, 1, 1);  // SessionLog.status = START
  int_field(out, 2, x);
  bytes_field(out, 7, log);
  return out;
}

std::string scalars_event(double seconds, int64_t x, std::span<const Scalar> scalars) {
  std::string summary, out = event(seconds);
  for (const Scalar& scalar : scalars) {  // Summary.Value: tag 1, simple_value 2
    std::string value;
    bytes_field(value, 1, scalar.tag);
    float_field(value, 2, static_cast<float>(scalar.value));
    bytes_field(summary, 1, value);
  }
  int_field(out, 2, x);
  bytes_field(out, 5, summary);
  return out;
}

}  // namespace dsj::observe
