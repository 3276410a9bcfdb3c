// The command line of dsj-operator. What its chart sets comes from the environment (contract.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/observed.h"

namespace dsj::op {

struct Options {
  std::string kubeconfig;               ///< empty: the pod's account, else the usual file
  std::vector<std::string> namespaces;  ///< empty: all of them
  bool watch_nodes = true;              ///< needs a ClusterRole
  bool leader_election = true;
  std::string lease_namespace;  ///< empty: the account's namespace
  std::string lease_name = "dsj-operator";
  std::string identity;               ///< empty: the host's name
  std::string health_address;         ///< empty: none
  std::string metrics_address;        ///< HTTPS, for reviewed readers; empty: with the health
  std::string webhook_configuration;  ///< a ValidatingWebhookConfiguration; empty: no webhook
  std::string webhook_certificates;   ///< a directory that others write; empty: our own
  std::string webhook_address;
  std::vector<std::string> webhook_hosts;  ///< names by which the API server calls it
  int workers = 8;                         ///< passes at a time
  Settings settings;
};

// The chart sets these, for the operator alone.
inline constexpr char kEnvWebhook[] = "DSJ_WEBHOOK";  ///< webhook_configuration
inline constexpr char kEnvWebhookCertificates[] = "DSJ_WEBHOOK_CERTIFICATES";
inline constexpr char kEnvMetricsAddress[] = "DSJ_METRICS_ADDRESS";           ///< metrics_address
inline constexpr char kEnvPodSecurityContext[] = "DSJ_POD_SECURITY_CONTEXT";  ///< pod_security
inline constexpr char kEnvSecurityContext[] = "DSJ_SECURITY_CONTEXT";  ///< container_security
inline constexpr char kEnvDefaultTemplate[] = "DSJ_DEFAULT_TEMPLATE";  ///< default_template
inline constexpr char kEnvMarkNodes[] = "DSJ_MARK_NODES";              ///< node_marks
inline constexpr char kEnvWebhookHosts[] = "DSJ_WEBHOOK_HOSTS";        ///< "a,b"

/// nullopt: return `exit_code` (after help, or a mistake that was printed).
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dsj::op
