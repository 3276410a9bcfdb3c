// TensorBoard's event files without its library: TFRecord frames around Event messages in protocol
// buffers' wire format. Scalars only. Pure: functions return bytes, the caller writes them.
//
// A frame: length (8 bytes, little endian), masked CRC-32C of it, the message, masked CRC-32C of
// the message. Field numbers: tensorflow/core/util/event.proto and framework/summary.proto.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace dsj::observe {

/// A value of a curve.
struct Scalar {
  std::string tag;  ///< "Train/Samples/lr"
  double value = 0;
  int64_t x = 0;  ///< samples seen, or steps
};

/// CRC-32C (Castagnoli).
uint32_t crc32c(std::string_view bytes);
/// One frame with its message.
std::string tf_record(std::string_view message);

/// The first event of a file. `seconds`: since 1970, here and below.
std::string version_event(double seconds);
/// An event that the run continues from `x`: readers drop values of earlier files at x and later.
std::string restart_event(double seconds, int64_t x);
/// One event. All scalars must have the same x. Values are written as floats, as in torch's writer.
std::string scalars_event(double seconds, int64_t x, std::span<const Scalar> scalars);

}  // namespace dsj::observe
