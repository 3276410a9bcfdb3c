// What every verb against a cluster has in common: kubectl's own flags, the connection, and what is
// said when the API server refuses. Verbs get the connection from a Connect, so that tests hand in
// an API server in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/verbs.h"
#include "kube/client.h"

namespace dsj::cli {

/// Exit codes of these verbs, beside those of verbs.h.
inline constexpr int kExitNotFound = 4;     ///< no such job, or no DeepSpeedJobs at all
inline constexpr int kExitForbidden = 5;    ///< not let in, or not allowed to
inline constexpr int kExitUnreachable = 6;  ///< no answer

struct ClusterFlags {
  std::string ns, context, kubeconfig;
};
/// -n/--namespace, --context, --kubeconfig.
void add_cluster_flags(CLI::App& app, ClusterFlags& flags);

/// Both outlive the session; `transport` may be shared.
class Session {
 public:
  Session(std::shared_ptr<kube::Transport> transport, kube::Clock& clock, std::string ns,
          std::string server);

  const std::string ns;      ///< of the flag, else of the context, else "default"
  const std::string server;  ///< for messages
  kube::Clock& clock;
  kube::Transport& transport() { return *transport_; }
  kube::Client client;
  kube::Cancel cancel;  ///< ends what the verb waits for

 private:
  std::shared_ptr<kube::Transport> transport_;
};
using Connect = std::function<Result<std::unique_ptr<Session>>(const ClusterFlags&)>;

/// By the kubeconfig, or by the account of the pod that this runs in.
Result<std::unique_ptr<Session>> connect_to_cluster(const ClusterFlags& flags);

kube::Resource jobs_resource();

/// Prints what went wrong, with what to do, on stderr; the exit code. `what`: "job \"x\"", or
/// empty.
int report_api(const char* verb, const Session& session, const std::string& what,
               const kube::ApiError& error);

/// Seconds since 1970 of "2026-01-31T12:00:00Z", fractions dropped; -1: no such time.
int64_t seconds_of(const std::string& time);
/// "45s", "12m", "3h", "5d", as kubectl has it; "-" for no time.
std::string age_text(const std::string& time, int64_t now);
int64_t now_seconds(kube::Clock& clock);

}  // namespace dsj::cli
