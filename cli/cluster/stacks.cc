#include "cli/cluster/stacks.h"

#include <map>

#include "job/stacks_request.h"

namespace dsj::cli {
namespace {

constexpr kube::Milliseconds kPatience{20'000}, kBetween{500};
/// Logs are read from before the request, because the nodes' clocks differ.
constexpr int64_t kEarlierSeconds = 60;

struct Asked {
  const PodRef* pod;
  StacksTold told;
};

/// The running workers, each with its newest pod.
std::map<int64_t, Asked> running_workers(const std::vector<PodRef>& pods) {
  std::map<int64_t, Asked> newest;
  for (const PodRef& pod : pods) newest[pod.worker] = {&pod, {}};
  std::erase_if(newest, [](const auto& entry) {
    return word(entry.second.pod->object, "status.phase") != "Running";
  });
  return newest;
}

bool read_answers(Session& session, std::map<int64_t, Asked>& workers, int64_t request,
                  int64_t since) {
  bool all = true;
  for (auto& [worker, asked] : workers) {
    if (asked.told.whole) continue;
    asked.told = {};
    // A log that cannot be read now is read again later.
    (void)read_log(session, asked.pod->name, {.since_seconds = since},
                   [&told = asked.told, request](const std::string& line) {
                     told.take(line, request);
                     return !told.whole;
                   });
    all &= asked.told.whole;
  }
  return all;
}

}  // namespace

void StacksTold::take(const std::string& log_line, int64_t request) {
  const std::string prefix = stacks_prefix(request);
  const size_t at = log_line.find(prefix);
  if (at == std::string::npos) return;
  std::string line = log_line.substr(at + prefix.size());
  if (line == kStacksEnd) {
    whole = true;
  } else {
    lines.push_back(std::move(line));
  }
}

kube::ApiResult<std::string> take_stacks(Session& session, const Json& job,
                                         const std::vector<PodRef>& pods) {
  auto workers = running_workers(pods);
  if (workers.empty()) return "no worker runs\n";
  const auto request =
      std::chrono::duration_cast<kube::Milliseconds>(session.clock.wall().time_since_epoch())
          .count();
  const auto patched = session.client.merge_patch(
      jobs_resource(), session.ns, word(job, "metadata.name"),
      {{"metadata",
        {{"uid", word(job, "metadata.uid")},
         {"annotations", {{kAnnotationStacks, std::to_string(request)}}}}}});
  if (!patched) return std::unexpected(patched.error());
  const auto start = session.clock.monotonic();
  while (true) {
    const auto waited = session.clock.monotonic() - start;
    const int64_t since = kEarlierSeconds + waited.count() / 1000;
    if (read_answers(session, workers, request, since) || waited > kPatience) break;
    if (session.clock.sleep(kBetween, session.cancel)) break;
  }
  std::string text;
  for (const auto& [worker, asked] : workers) {
    text += "worker " + std::to_string(worker) + ", pod " + asked.pod->name + "\n";
    for (const auto& line : asked.told.lines) text += "  " + line + "\n";
    if (!asked.told.whole)
      text += "  did not answer: no rank runs there, or its agent is older or does not run\n";
  }
  return text;
}

}  // namespace dsj::cli
