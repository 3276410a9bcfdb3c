#include "cli/cluster/session.h"

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "common/argument_parser.h"
#include "job/contract.h"
#include "kube/api_transport.h"
#include "kube/kubeconfig.h"

namespace dsj::cli {
namespace {

using Kind = kube::ApiError::Kind;

/// Short, because a user waits at a terminal.
constexpr kube::ClientOptions kClientOptions{.attempts = 3,
                                             .deadline = kube::Milliseconds(20'000),
                                             .request_timeout = kube::Milliseconds(15'000)};

}  // namespace

void add_cluster_flags(ArgumentParser& parser, ClusterFlags& flags) {
  parser.option("-n,--namespace", flags.ns, "the job's namespace (default: the context's)");
  parser.option("--context", flags.context, "the kubeconfig's context (default: the current one)");
  parser.option("--kubeconfig", flags.kubeconfig,
                "the kubeconfig (default: $KUBECONFIG, ~/.kube/config)");
}

Session::Session(std::shared_ptr<kube::Transport> transport, kube::Clock& clock, std::string ns,
                 std::string server)
    : ns(std::move(ns)),
      server(std::move(server)),
      clock(clock),
      client(*transport, clock, kClientOptions),
      transport_(std::move(transport)) {}

Result<std::unique_ptr<Session>> connect_to_cluster(const ClusterFlags& flags) {
  auto access = kube::find_users_access(flags.kubeconfig, flags.context);
  if (!access) {
    Error error = access.error();
    // A missing file is an Environment error; a wrong content is BadInput.
    if (std::error_code ignored;
        error.where.empty() || !std::filesystem::exists(error.where, ignored))
      error.kind = ErrorKind::Environment;
    if (error.hint.empty()) error.hint = "name a cluster with --kubeconfig FILE or $KUBECONFIG";
    return std::unexpected(std::move(error));
  }
  DSJ_TRY(auto transport, kube::make_api_transport(*access));
  return std::make_unique<Session>(std::move(transport), kube::system_clock(),
                                   flags.ns.empty() ? access->default_namespace : flags.ns,
                                   access->server);
}

kube::Resource jobs_resource() {
  return {contract::kGroup, contract::kVersion, contract::kPlural, contract::kKind, true};
}

int report_api(const char* verb, const Session& session, const std::string& what,
               const kube::ApiError& error) {
  const std::string head = "dsj " + std::string(verb) + ": " + (what.empty() ? "" : what + ": ");
  std::string hint;
  int code = 1;
  if (error.kind == Kind::NotFound) {
    code = kExitNotFound;
    // The message for an unknown kind names no object.
    hint = error.message.find('"') == std::string::npos
               ? "the cluster has no DeepSpeedJobs: install the chart (docs/install.md)"
               : "`kubectl dsj get -A` lists every job; this looked in namespace " + session.ns;
  } else if (error.kind == Kind::Forbidden || error.kind == Kind::Unauthorized) {
    code = kExitForbidden;
    hint = error.kind == Kind::Unauthorized
               ? "the kubeconfig's token or certificate is not accepted by " + session.server
               : "`kubectl auth can-i --list -n " + session.ns + "` shows what you may do";
  } else if (error.kind == Kind::Network && error.net == kube::NetError::Kind::Credentials) {
    code = kExitForbidden;
  } else if (error.kind == Kind::Network) {
    code = kExitUnreachable;
    hint = "the API server is " + session.server + ": is it the right --context?";
  } else if (error.kind == Kind::Unavailable || error.kind == Kind::TooManyRequests) {
    code = kExitUnreachable;
    hint = "the API server cannot serve now: try again in a minute";
  } else if (error.kind == Kind::Conflict) {
    hint = "another client changed it at the same time: try again";
  }
  std::fprintf(stderr, "%s%s%s\n", head.c_str(), error.to_string().c_str(),
               hint.empty() ? "" : (" (" + hint + ")").c_str());
  return code;
}

int64_t seconds_of(const std::string& time) {
  std::tm parts{};
  if (strptime(time.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return -1;
  return timegm(&parts);
}

std::string age_text(const std::string& time, int64_t now) {
  const int64_t then = seconds_of(time);
  if (then < 0) return "-";
  const int64_t age = std::max<int64_t>(0, now - then);
  if (age < 120) return std::to_string(age) + "s";
  if (age < 2 * 3600) return std::to_string(age / 60) + "m";
  if (age < 48 * 3600) return std::to_string(age / 3600) + "h";
  return std::to_string(age / 86400) + "d";
}

int64_t now_seconds(kube::Clock& clock) {
  return std::chrono::duration_cast<std::chrono::seconds>(clock.wall().time_since_epoch()).count();
}

}  // namespace dsj::cli
