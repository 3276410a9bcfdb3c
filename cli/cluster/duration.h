// Durations of kubectl and Go: "90s", "5m", "1h30m", "1.5h", "300ms", "-1s"; a number is in
// seconds.
// Tested by: tests/cli/cluster/duration_test.cc
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "common/argument_parser.h"

namespace dsj::cli {

/// nullopt if it is not a duration, or longer than 292 years.
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text);

/// Reads an argument into `to`. `positive`: refuse a duration of 0 or less.
ArgumentParser::Take take_duration(std::optional<std::chrono::milliseconds>& to,
                                   bool positive = false);

/// As kubectl reads --timeout: 0 looks once, less than 0 waits for a week.
ArgumentParser::Take take_timeout(std::optional<std::chrono::milliseconds>& to);

}  // namespace dsj::cli
