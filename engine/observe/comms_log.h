// comms_logger: how long each collective took, by operation and message size, in the columns of
// DeepSpeed's log_summary. Torch-free and pure; engine/comm hands it the calls.
//
// Bandwidths follow DeepSpeed's formulas for a message of B bytes in t seconds, W ranks:
//   all_gather      B is this rank's part: algbw B W / t, busbw algbw (W-1)/W
//   reduce_scatter  B is the whole input:  algbw B / t,   busbw algbw (W-1)/W
//   all_reduce      algbw 2 B / t, busbw 2 B / t (W-1)/W
//   broadcast, barrier: both B / t
// Averages are plain means over all calls; DeepSpeed leaves the outer tenth out.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/dsconfig/resolved.h"

namespace dsj::observe {

struct CommsCall {
  std::string operation;  ///< "all_gather"
  std::string purpose;    ///< "parameters, layer 3": shown with comms_logger.debug
  int64_t bytes = 0;      ///< the message, as above
  double ms = 0;
};

struct Bandwidth {
  double algorithm = 0, bus = 0;  ///< Gbit/s
};
Bandwidth bandwidth(const std::string& operation, int64_t bytes, double ms, int world);

class CommsLog {
 public:
  CommsLog(const dsconfig::CommsLoggerConfig& config, int world) : config_(config), world_(world) {}
  /// Takes a call when prof_all or prof_ops ask for it. With verbose: the line that tells it.
  std::optional<std::string> add(const CommsCall& call);
  /// The table of everything so far; empty when there was nothing.
  std::string table() const;

 private:
  struct Sum {
    int64_t calls = 0;
    double ms = 0, algorithm = 0, bus = 0;
  };
  bool wanted(const std::string& operation) const;
  dsconfig::CommsLoggerConfig config_;
  int world_;
  std::map<std::string, std::map<int64_t, Sum>> sums_;  ///< by record, by bytes
};

/// "1.5 KB", in powers of 1024, as DeepSpeed writes sizes.
std::string size_text(int64_t bytes);

}  // namespace dsj::observe
