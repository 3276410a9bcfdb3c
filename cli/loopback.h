// Whether this machine's processes reach each other: agents and ranks of a local run talk over
// 127.0.0.1, and where that is down (a network namespace without `lo`) each waits for its timeout.
// Tested by: tests/cli/loopback_test.cc
#pragma once

#include "common/result.h"

namespace dsj::cli {

/// Opens a connection to itself. Environment: the loopback interface does not carry it.
Status check_loopback();

}  // namespace dsj::cli
