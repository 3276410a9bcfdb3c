// Collectives that tell how long each operation took (comms_logger). Each one is waited for when it
// is issued, as DeepSpeed's logger does: latencies are right, and nothing overlaps. A decorator: it
// is not there when nobody asks.
#pragma once

#include <functional>
#include <memory>

#include "engine/comm/collectives.h"

namespace dsj::comm {

struct Call {
  Kind kind = Kind::Barrier;
  std::string unit;        ///< Label::unit
  std::int64_t bytes = 0;  ///< the message: of all_gather this rank's part, else the whole input
  double seconds = 0;      ///< from issue to done on this rank
};
using CallObserver = std::function<void(const Call&)>;

/// `inner` behind a decorator; `observer` is called by the thread that issues. `device` is the
/// group's.
std::unique_ptr<Collectives> observed(std::unique_ptr<Collectives> inner, CallObserver observer,
                                      at::Device device);

}  // namespace dsj::comm
