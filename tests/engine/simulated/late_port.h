// The CPU's kernels as the port of a late device: each call is queued with what it reads and writes.
#pragma once

#include "engine/kernels/port.h"

namespace dsj::simulated {

/// Lives as long as the process. Without a late device on the calling thread, calls run at once.
kernels::Port& late_port();

}  // namespace dsj::simulated
