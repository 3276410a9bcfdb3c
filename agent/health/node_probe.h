// Collects node facts from /proc, file systems, the driver's library, and a server's date.
#pragma once

#include <functional>
#include <string>

#include "agent/health/nvml.h"

namespace dsj::agent {

struct ProbePlaces {
  std::string root;             ///< prefix of /proc and /dev, for tests
  std::string scratch, output;  ///< directories that exist
  std::string checkpoints;      ///< empty if another worker measures them
  std::string nvml = "libnvidia-ml.so.1";
};

/// What is known about the API server's clock. Unset values are unknown.
struct ClockHints {
  /// Seconds since 1970 in the API server's answer to a request made now.
  std::optional<int64_t> server_time;
  /// When the API server signed this pod's token: a lower bound of its clock.
  std::optional<int64_t> not_before;
};

/// Seconds by which `now` is ahead of the API server's clock; negative if behind. A token alone can
/// only prove that a clock is behind, because it may have been signed long ago. Pure.
std::optional<double> clock_ahead(const ClockHints& hints, int64_t now);

/// Seconds since 1970 of an HTTP date ("Sun, 06 Nov 1994 08:49:37 GMT"); nullopt if the format
/// differs. Pure.
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
