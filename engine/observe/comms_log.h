// comms_logger: the duration of each collective, by operation and message size, in the columns of
// DeepSpeed's log_summary. Torch-free and pure; engine/train passes the calls.
//
// Bandwidths follow DeepSpeed's formulas, for a message of B bytes in t seconds with W ranks:
//
//                         B                    algbw        busbw
//   all_gather            this rank's part     B W / t      algbw (W-1)/W
//   reduce_scatter        the whole input      B / t        algbw (W-1)/W
//   all_reduce            the whole input      2 B / t      algbw (W-1)/W
//   broadcast, barrier    the whole input      B / t        B / t
//
// Averages are plain means over all calls. DeepSpeed leaves out the outer tenth.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "job/dsconfig/config/resolved.h"

namespace dsj::observe {

struct CommsCall {
  std::string operation;  ///< "all_gather"
  std::string purpose;    ///< "parameters, layer 3"; shown with comms_logger.debug
  int64_t bytes = 0;      ///< B, as above
  double ms = 0;
};

struct Bandwidth {
  double algorithm = 0, bus = 0;  ///< Gbit/s
};
Bandwidth bandwidth(const std::string& operation, int64_t bytes, double ms, int world);

class CommsLog {
 public:
  CommsLog(const dsconfig::CommsLoggerConfig& config, int world) : config_(config), world_(world) {}
  /// Records a call if prof_all or prof_ops select it. With verbose it returns its line.
  std::optional<std::string> add(const CommsCall& call);
  /// The table of all calls so far; empty if there were none.
  std::string table() const;

 private:
  struct Sum {
    int64_t calls = 0;
    double ms = 0, algorithm = 0, bus = 0;
  };
  bool wanted(const std::string& operation) const;
  dsconfig::CommsLoggerConfig config_;
  int world_;
  std::map<std::string, std::map<int64_t, Sum>> sums_;  ///< [record][bytes]
};

/// "1.5 KB", in powers of 1024, as DeepSpeed writes sizes.
std::string size_text(int64_t bytes);

}  // namespace dsj::observe
