#include "operator/observe/fetch_status.h"

#include <vector>

#include "common/json.h"
#include "job/contract.h"
#include "job/spec/initializers.h"

namespace dsj::op {
namespace {

using Json = nlohmann::json;

constexpr size_t kWordsMax = 1000;

/// A status of one of spec.initializers' containers.
struct Initializer {
  std::string name;
  const Json* state = nullptr;
};

std::vector<Initializer> initializers_of(const Json& statuses) {
  std::vector<Initializer> found;
  for (const Json& status : statuses) {
    const std::string name = jobspec::initializer_of(json_text(status, "name"));
    if (!name.empty()) found.push_back({name, &json_child(status, "state")});
  }
  return found;
}

}  // namespace

std::string fetching_text(const Json& statuses) {
  const auto all = initializers_of(statuses);
  std::string since;  // end of the previous initializer, until this one runs
  for (size_t i = 0; i < all.size(); ++i) {
    if (const Json& ended = json_child(*all[i].state, "terminated"); ended.is_object()) {
      if (json_whole(ended, "exitCode") != 0) return {};
      since = json_text(ended, "finishedAt");
      continue;
    }
    const Json& running = json_child(*all[i].state, "running");
    if (running.is_object()) since = json_text(running, "startedAt");
    if (!running.is_object() && i == 0) return {};
    return all[i].name + " since " + since + ", " + std::to_string(i + 1) + " of " +
           std::to_string(all.size());
  }
  return {};
}

std::optional<FailedFetch> failed_fetch(const Json& statuses) {
  for (const Initializer& one : initializers_of(statuses)) {
    const Json& ended = json_child(*one.state, "terminated");
    const int code = static_cast<int>(json_whole(ended, "exitCode").value_or(0));
    if (code == 0) continue;
    const std::string said = json_text(ended, "reason");
    FailedFetch end{.exit_code = code};
    end.message = "initializer " + one.name + " ended with exit code " + std::to_string(code);
    if (!said.empty() && said != "Error") end.message += " (" + said + ")";
    end.last_words = json_text(ended, "message");
    if (end.last_words.size() > kWordsMax)
      end.last_words = "..." + end.last_words.substr(end.last_words.size() - kWordsMax);
    // Agents give these exit codes a meaning that a user's image does not.
    if (code == contract::kExitPeerLost || code == contract::kExitPreempted)
      end.exit_code = contract::kExitFailed;
    return end;
  }
  return std::nullopt;
}

}  // namespace dsj::op
