// The address for connections between this machine's processes. Agents and ranks of a local run
// use it; if it is down (a network namespace without `lo`), each would wait for its timeout.
// Tested by: tests/cli/run/loopback_test.cc
#pragma once

#include <string>

#include "common/result.h"

namespace dsj::cli {

/// "127.0.0.1", or "::1" with IPv6 only; tested by a connection. Errors: Environment if both fail.
Result<std::string> loopback_address();

}  // namespace dsj::cli
