// The address at which this machine's processes reach each other: agents and ranks of a local run talk over it, and
// where it is down (a network namespace without `lo`) each would wait for its timeout.
// Tested by: tests/cli/run/loopback_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::cli {

/// "127.0.0.1", or "::1" where only IPv6 is there: opens a connection to itself. Environment: neither carries one.
Result<std::string> loopback_address();

}  // namespace dsj::cli
