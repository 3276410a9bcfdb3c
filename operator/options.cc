#include "operator/options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/contract.h"
#include "operator/webhook/webhook.h"

namespace dsj::op {

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  CLI::App app("Runs DeepSpeedJobs on a Kubernetes cluster.", "dsj-operator");
  options.health_address = "0.0.0.0:" + std::to_string(contract::kOperatorPort);
  options.webhook_address = "0.0.0.0:" + std::to_string(kWebhookPort);
  app.add_option("--kubeconfig", options.kubeconfig,
                 "in a pod: its own account; else $KUBECONFIG or ~/.kube/config");
  app.add_option("--namespace", options.namespaces,
                 "watch this namespace only; may be given several times, or as a,b")
      ->delimiter(',')
      ->envname(contract::kEnvWatchNamespaces);
  app.add_option("--read-nodes", options.watch_nodes, "false: a lost node shows by its pods only")
      ->capture_default_str()
      ->envname(contract::kEnvReadNodes);
  app.add_flag("!--no-leader-election", options.leader_election,
               "for a single replica that is never two");
  app.add_option("--lease-namespace", options.lease_namespace, "of the leader's Lease")
      ->envname(contract::kEnvNamespace);
  app.add_option("--lease-name", options.lease_name, "of the leader's Lease")
      ->capture_default_str()
      ->envname(contract::kEnvLeaseName);
  app.add_option("--identity", options.identity, "of this process in the Lease; the host's name")
      ->envname(contract::kEnvPodName);
  app.add_option("--health-address", options.health_address,
                 "of /healthz, /readyz and /metrics; empty: none")
      ->capture_default_str();
  app.add_option("--webhook", options.webhook_configuration,
                 "ValidatingWebhookConfiguration whose caBundle is kept; empty: jobs are not "
                 "reviewed before they are stored")
      ->envname(kEnvWebhook);
  app.add_option("--webhook-host", options.webhook_hosts,
                 "name by which the API server calls the webhook: SERVICE.NAMESPACE.svc")
      ->delimiter(',')
      ->envname(kEnvWebhookHosts);
  app.add_option("--webhook-address", options.webhook_address, "of the webhook (HTTPS)")
      ->capture_default_str();
  app.add_option("--workers", options.workers, "jobs looked at at the same time")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--worker-image", options.settings.worker_image,
                 "of workers whose template names none")
      ->capture_default_str()
      ->envname(contract::kEnvWorkerImage);
  app.add_option("--image-pull-policy", options.settings.image_pull_policy,
                 "of that image; empty: Kubernetes' default")
      ->check(CLI::IsMember({"", "Always", "IfNotPresent", "Never"}))
      ->envname(contract::kEnvImagePullPolicy);
  app.add_option("--network-policy", options.settings.network_policy,
                 "a NetworkPolicy per job: its pods reach each other, everybody its metrics")
      ->capture_default_str()
      ->envname(contract::kEnvNetworkPolicy);
  app.add_option("--volcano", options.settings.volcano,
                 "make Volcano's PodGroups for jobs that ask for them; Volcano must be installed")
      ->capture_default_str()
      ->envname(contract::kEnvVolcano);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : contract::kExitBadInput;
    return std::nullopt;
  }
  if (!options.webhook_configuration.empty() && options.webhook_hosts.empty()) {
    std::cerr << "dsj-operator: --webhook needs --webhook-host\n";
    exit_code = contract::kExitBadInput;
    return std::nullopt;
  }
  return options;
}

}  // namespace dsj::op
