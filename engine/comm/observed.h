// A decorator that reports how long each operation took (comms_logger). It waits for each operation
// as soon as it is issued, as DeepSpeed's logger does: latencies are exact, but nothing overlaps.
// Only in use if a key asks for it.
#pragma once

#include <functional>
#include <memory>

#include "engine/comm/collectives.h"

namespace dsj::comm {

struct Call {
  Kind kind = Kind::Barrier;
  std::string unit;        ///< Label::unit
  std::int64_t bytes = 0;  ///< all_gather: this rank's part; else the whole input
  double seconds = 0;      ///< from issue to done on this rank
};
using CallObserver = std::function<void(const Call&)>;

/// Calls `observer` on the issuing thread. `device`: the group's.
std::unique_ptr<Collectives> observed(std::unique_ptr<Collectives> inner, CallObserver observer,
                                      at::Device device);

}  // namespace dsj::comm
