#include "agent/pod_node.h"

#include <utility>

#include "agent/health/node_probe.h"
#include "agent/join/token.h"
#include "agent/links/link_meter.h"
#include "common/files/posix_files.h"
#include "common/log.h"
#include "job/contract.h"

namespace dsj::agent {
namespace {

using namespace dsj::contract;

constexpr std::chrono::milliseconds kClockAsked{3'000};

/// Only worker 0 may use the API server; every worker has a token that the API server signed.
ClockHints clock_hints(const std::string& token_file, kube::Transport* api,
                       const kube::Cancel& cancel) {
  ClockHints hints;
  PosixFiles files;
  if (const auto text = files.read_all(token_file, kTokenBytesMax)) {
    const auto token = parse_token(text->substr(0, text->find_last_not_of(" \n") + 1));
    if (token && token->claims.issued > 0) hints.not_before = token->claims.issued;
  }
  if (!api) return hints;
  const auto answer = api->call({.path = "/version", .timeout = kClockAsked}, cancel);
  if (!answer) return hints;
  const auto date = answer->headers.find("date");
  if (date != answer->headers.end()) hints.server_time = time_from_http_date(date->second);
  return hints;
}

}  // namespace

NodeCheck::Result NodeCheck::look() {
  if (action_ == jobspec::NodeHealthAction::Off) return {};
  const auto problems = judge_node(probe_->look(), needs_);
  // Later this container itself uses the memory that it requested.
  needs_.memory_request = 0;
  Result result{.problems = problems.size()};
  const bool moves = action_ == jobspec::NodeHealthAction::Move;
  if (moves) result.unfit = unfit_because(problems);
  for (const NodeProblem& problem : problems) {
    if (!moves || !problem.of_the_node) result.told.push_back(problem.what);
  }
  return result;
}

std::unique_ptr<NodeCheck> make_node_check(const Pod& pod, const AgentConfig& config,
                                           const std::string& root, kube::Transport* api,
                                           const kube::Cancel& cancel) {
  const std::string& output = config.job.output_dir;
  const ProbePlaces places{
      .scratch = config.run_dir,
      .output = output,
      .checkpoints = pod.worker == 0 ? path_join(output, kCheckpointsDir) : std::string()};
  const std::string token = path_join(root + kTokenMountPath, kTokenFile);
  return std::make_unique<NodeCheck>(
      std::make_unique<PosixNodeProbe>(
          places, [token, api, cancel] { return clock_hints(token, api, cancel); }),
      NodeNeeds{.memory_request = pod.memory_request, .ranks = config.slots, .gpus = pod.gpus},
      pod.node_health.action);
}

std::unique_ptr<LinkMeter> make_link_meter(const Pod& pod, int replicas) {
  using jobspec::NodeHealthAction;
  const bool wanted = pod.node_health.action != NodeHealthAction::Off &&
                      pod.node_health.min_peer_bandwidth_percent > 0;
  if (!wanted || replicas < 2 || pod.node.empty()) return nullptr;
  auto meter =
      TcpLinkMeter::open(pod.ip, pod.node, pod.node_health.action == NodeHealthAction::Move);
  if (meter) return std::move(*meter);
  log::warn("this node's link is not measured: " + meter.error().to_string());
  return nullptr;
}

}  // namespace dsj::agent
