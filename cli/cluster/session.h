// Shared by all verbs against a cluster: kubectl's own flags, the connection, and messages
// about refusals of the API server. A verb gets its connection from a Connect, so that tests
// can pass an API server in memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/exit_codes.h"
#include "cli/verbs.h"
#include "common/argument_parser.h"
#include "kube/client.h"

namespace dsj::cli {

/// Polling interval for something that has not begun.
inline constexpr kube::Milliseconds kLookAgain{1000};

struct ClusterFlags {
  std::string ns, context, kubeconfig;
};
/// -n/--namespace, --context, --kubeconfig.
void add_cluster_flags(ArgumentParser& parser, ClusterFlags& flags);

/// A connection with its context. The clock must outlive it.
class Session {
 public:
  Session(std::shared_ptr<kube::Transport> transport, kube::Clock& clock, std::string ns,
          std::string server);

  const std::string ns;      ///< from the flag, else the context, else "default"
  const std::string server;  ///< for messages
  kube::Clock& clock;
  kube::Transport& transport() { return *transport_; }
  kube::Client client;
  kube::Cancel cancel;  ///< cancels the verb's requests

 private:
  std::shared_ptr<kube::Transport> transport_;
};
using Connect = std::function<Result<std::unique_ptr<Session>>(const ClusterFlags&)>;

/// Connects with the kubeconfig, or in a pod with its service account.
Result<std::unique_ptr<Session>> connect_to_cluster(const ClusterFlags& flags);

kube::Resource jobs_resource();

/// Prints the error and what to do on stderr; returns the exit code. `what`: "job \"x\"", or
/// empty.
int report_api(const char* verb, const Session& session, const std::string& what,
               const kube::ApiError& error);

/// "2026-01-31T12:00:00Z" as seconds since 1970, without fractions; -1 for any other text.
int64_t seconds_of(const std::string& time);
/// "45s", "12m", "3h", "5d", as in kubectl; "-" without a time.
std::string age_text(const std::string& time, int64_t now);
int64_t now_seconds(kube::Clock& clock);

}  // namespace dsj::cli
