// The command line of dsj-operator. Values from the chart come from the environment (contract.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/observed.h"

namespace dsj::op {

struct Options {
  std::string kubeconfig;               ///< empty means the pod's account or else the usual file
  std::vector<std::string> namespaces;  ///< empty means all
  bool watch_nodes = true;              ///< needs a ClusterRole
  bool leader_election = true;
  std::string lease_namespace;  ///< empty means the account's namespace
  std::string lease_name = "dsj-operator";
  std::string identity;               ///< empty means the host's name
  std::string health_address;         ///< empty means none
  std::string metrics_address;        ///< HTTPS, with access checks; empty means at health_address
  std::string webhook_configuration;  ///< a ValidatingWebhookConfiguration; empty for no webhook
  std::string webhook_certificates;   ///< directory that another tool writes; empty if self-issued
  std::string webhook_address;
  std::vector<std::string> webhook_hosts;  ///< host names that the API server uses
  int workers = 8;                         ///< concurrent passes
  Settings settings;
};

// Set by the chart, for the operator only.
inline constexpr char kEnvWebhook[] = "DSJ_WEBHOOK";  ///< webhook_configuration
inline constexpr char kEnvWebhookCertificates[] = "DSJ_WEBHOOK_CERTIFICATES";
inline constexpr char kEnvMetricsAddress[] = "DSJ_METRICS_ADDRESS";           ///< metrics_address
inline constexpr char kEnvPodSecurityContext[] = "DSJ_POD_SECURITY_CONTEXT";  ///< pod_security
inline constexpr char kEnvSecurityContext[] = "DSJ_SECURITY_CONTEXT";  ///< container_security
inline constexpr char kEnvDefaultTemplate[] = "DSJ_DEFAULT_TEMPLATE";  ///< default_template
inline constexpr char kEnvMarkNodes[] = "DSJ_MARK_NODES";              ///< node_marks
inline constexpr char kEnvWebhookHosts[] = "DSJ_WEBHOOK_HOSTS";        ///< "a,b"

/// nullopt after --help or an error message: return `exit_code`.
std::optional<Options> parse_options(int argc, char** argv, int& exit_code);

}  // namespace dsj::op
