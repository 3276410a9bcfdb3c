// The real look at a node: /proc, file systems, the driver's library, a date that a server told.
#pragma once

#include <functional>
#include <string>

#include "agent/health/nvml.h"

namespace dsj::agent {

struct ProbePlaces {
  std::string root;             ///< before /proc and /dev: for tests
  std::string scratch, output;  ///< directories that exist
  std::string checkpoints;      ///< empty: not this worker's to measure
  std::string nvml = "libnvidia-ml.so.1";
};

/// What is known of another clock. Unset: nothing.
struct ClockHints {
  /// Seconds since 1970 that the API server's answer named as its time; asked now.
  std::optional<int64_t> server_time;
  /// When the API server signed this pod's token: its clock was at least there.
  std::optional<int64_t> not_before;
};

/// Seconds by which `now` is ahead of the API server's clock, below 0: behind. A token alone proves
/// only that a clock is behind: it may have been signed any time ago. Pure.
std::optional<double> clock_ahead(const ClockHints& hints, int64_t now);

/// Seconds since 1970 of an HTTP date ("Sun, 06 Nov 1994 08:49:37 GMT"); nullopt: another shape.
/// Pure.
std::optional<int64_t> time_from_http_date(const std::string& text);

class PosixNodeProbe final : public NodeProbe {
 public:
  PosixNodeProbe(ProbePlaces places, std::function<ClockHints()> hints)
      : places_(std::move(places)), hints_(std::move(hints)), nvml_(places_.nvml) {}
  NodeFacts look() override;

 private:
  const ProbePlaces places_;
  const std::function<ClockHints()> hints_;
  Nvml nvml_;
};

}  // namespace dsj::agent
