// What a pod's status tells of the init containers of spec.initializers. Pure.
// Tested by: tests/operator/fetching_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::op {

/// A pod's waiting_reason while it fetches.
inline constexpr char kFetching[] = "Fetching";
/// A termination's reason.
inline constexpr char kInitializerFailed[] = "InitializerFailed";

/// How an initializer ended that failed.
struct FailedFetch {
  int exit_code = 0;  ///< never one that means something else from an agent
  std::string message, last_words;
};

/// `statuses`: a pod's status.initContainerStatuses. Which initializer is at work, since when, and which of
/// how many it is ("model since 2026-01-01T00:00:00Z, 1 of 2"); empty: none.
std::string fetching_text(const nlohmann::json& statuses);
/// nullopt: none failed. Else the worker's container never ran.
std::optional<FailedFetch> failed_fetch(const nlohmann::json& statuses);

}  // namespace dsj::op
