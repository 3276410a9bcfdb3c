// Reads the state of the init containers of spec.initializers from a pod's status. Pure.
// Tested by: tests/operator/fetching_test.cc
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace dsj::op {

/// waiting_reason of a pod while an initializer runs.
inline constexpr char kFetching[] = "Fetching";
/// Reason of a termination.
inline constexpr char kInitializerFailed[] = "InitializerFailed";

/// How a failed initializer ended.
struct FailedFetch {
  int exit_code = 0;  ///< never a code that has another meaning for an agent
  std::string message, last_words;
};

/// `statuses` is a pod's status.initContainerStatuses. Names the initializer that runs, its start
/// and its position, as in "model since 2026-01-01T00:00:00Z, 1 of 2". Empty if none runs.
std::string fetching_text(const nlohmann::json& statuses);
/// The initializer that failed, so that the worker's container never ran; nullopt if none failed.
std::optional<FailedFetch> failed_fetch(const nlohmann::json& statuses);

}  // namespace dsj::op
