#include "operator/decide/fetching.h"

#include <algorithm>

#include "common/json.h"
#include "job/spec/initializers.h"

namespace dsj::op {
namespace {

/// The names of the job's initializers: those for which the reader added a container.
std::vector<std::string> names_of(const jobspec::Job& job) {
  std::vector<std::string> names;
  for (const Json& init : json_child(json_child(job.worker_template, "spec"), "initContainers")) {
    const std::string name = jobspec::initializer_of(json_text(init, "name"));
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

bool is_through(const PodView& pod) {
  if (pod.phase == PodView::Phase::Pending) return false;
  return !pod.termination || pod.termination->reason != kInitializerFailed;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

bool is_fetching(const PodView& pod) {
  return !pod.ended() && !pod.deleting_from && pod.waiting_reason == kFetching;
}

std::optional<Condition> data_ready(const jobspec::Job& job,
                                    const std::vector<const PodView*>& newest) {
  const auto names = names_of(job);
  if (names.empty()) return std::nullopt;
  const bool every_pod = std::ranges::any_of(names, [&](const std::string& name) {
    return jobspec::fetched_by_every_pod(job.worker_template,
                                         jobspec::initializer_target(name, job.training));
  });
  const PodView* first = nullptr;
  int fetch = 0, through = 0, wanted = 0;
  for (const PodView* pod : newest) {
    ++wanted;
    if (pod && is_fetching(*pod)) {
      if (!first) first = pod;
      ++fetch;
    }
    through += pod && is_through(*pod);
    if (!every_pod) break;  // worker 0 alone
  }
  if (first) {
    std::string text =
        "worker " + std::to_string(first->worker) + " fetches " + first->waiting_message;
    if (fetch > 1) text += "; " + std::to_string(fetch) + " workers fetch";
    return Condition{.type = kDataReady, .status = "False", .reason = kFetching, .message = text};
  }
  if (wanted > 0 && through == wanted)
    return Condition{
        .type = kDataReady, .status = "True", .reason = "Fetched", .message = listed(names)};
  return Condition{.type = kDataReady,
                   .status = "Unknown",
                   .reason = "Waiting",
                   .message = "nothing is being fetched: " + listed(names)};
}

std::optional<Time> startup_from(const Conditions& conditions, Time start) {
  const Condition* data = find_condition(conditions, kDataReady);
  if (!data) return start;
  if (data->status == "False") return std::nullopt;
  return std::max(start, data->since);
}

}  // namespace dsj::op
