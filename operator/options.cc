#include "operator/options.h"

#include <iostream>
#include <regex>

#include "common/argument_parser.h"
#include "job/contract.h"
#include "operator/egress.h"
#include "operator/webhook/webhook.h"

namespace dsj::op {

namespace {

void watching(ArgumentParser& parser, Options& options) {
  parser.option("--kubeconfig", options.kubeconfig,
                "in a pod: its own account; else $KUBECONFIG or ~/.kube/config");
  parser
      .option("--namespace", options.namespaces,
              "watch this namespace only; may be given several times, or as a,b")
      .separated_by(',')
      .environment(contract::kEnvWatchNamespaces);
  parser.option("--read-nodes", options.watch_nodes, "false: a lost node shows by its pods only")
      .show_default()
      .environment(contract::kEnvReadNodes);
}

void serving(ArgumentParser& parser, Options& options) {
  parser.flag("!--no-leader-election", options.leader_election,
              "for a single replica that is never two");
  parser.option("--lease-namespace", options.lease_namespace, "of the leader's Lease")
      .environment(contract::kEnvNamespace);
  parser.option("--lease-name", options.lease_name, "of the leader's Lease")
      .show_default()
      .environment(contract::kEnvLeaseName);
  parser.option("--identity", options.identity, "of this process in the Lease; the host's name")
      .environment(contract::kEnvPodName);
  parser
      .option("--health-address", options.health_address,
              "of /healthz, /readyz and /metrics; empty: none")
      .show_default();
  parser
      .option("--metrics-address", options.metrics_address,
              "of /metrics over HTTPS, for those whose token the cluster lets get /metrics; empty: "
              "beside the health, for everybody")
      .environment(kEnvMetricsAddress);
}

void webhook(ArgumentParser& parser, Options& options) {
  parser
      .option("--webhook", options.webhook_configuration,
              "ValidatingWebhookConfiguration whose caBundle is kept; empty: jobs are not "
              "reviewed before they are stored")
      .environment(kEnvWebhook);
  parser
      .option("--webhook-host", options.webhook_hosts,
              "name by which the API server calls the webhook: SERVICE.NAMESPACE.svc")
      .separated_by(',')
      .environment(kEnvWebhookHosts);
  parser
      .option(
          "--webhook-certificates", options.webhook_certificates,
          "instead of --webhook: a directory with tls.crt and tls.key, as cert-manager writes it")
      .environment(kEnvWebhookCertificates);
  parser.option("--webhook-address", options.webhook_address, "of the webhook (HTTPS)")
      .show_default();
}

void jobs(ArgumentParser& parser, Options& options) {
  parser.option("--workers", options.workers, "jobs looked at at the same time")
      .show_default()
      .from_to(1, 64);
  parser
      .option("--worker-image", options.settings.worker_image,
              "of workers whose template names none")
      .show_default()
      .environment(contract::kEnvWorkerImage);
  parser
      .option("--image-pull-policy", options.settings.image_pull_policy,
              "of that image; empty: Kubernetes' default")
      .one_of({"", "Always", "IfNotPresent", "Never"})
      .environment(contract::kEnvImagePullPolicy);
  parser
      .option(
          "--tmp-size-limit",
          [&options](const std::string& word) -> std::optional<std::string> {
            static const std::regex quantity("(0|[1-9][0-9]*)(Ki|Mi|Gi|Ti|k|M|G|T)?");
            if (!std::regex_match(word, quantity)) return "expected a quantity as 500Mi or 10Gi";
            options.settings.tmp_size_limit = word;
            return std::nullopt;
          },
          "of a worker's /tmp, unless its template mounts one [10Gi]; 0: the node's disk")
      .environment(contract::kEnvTmpSizeLimit);
  parser
      .option("--default-template", options.settings.default_template,
              "DeepSpeedJobTemplate of jobs that name none, when they are made or edited")
      .environment(kEnvDefaultTemplate);
  parser
      .option(
          "--mark-nodes",
          [&options](const std::string& word) -> std::optional<std::string> {
            const auto marks = node_marks_from_word(word);
            if (!marks) return "expected none, annotate or taint";
            options.settings.node_marks = *marks;
            return std::nullopt;
          },
          "on a node that an agent found unfit: leave nothing, an annotation, or also a taint that "
          "keeps all pods away [none]")
      .environment(kEnvMarkNodes);
  parser
      .option("--network-policy", options.settings.network_policy,
              "a NetworkPolicy per job: its pods reach each other, everybody its metrics")
      .show_default()
      .environment(contract::kEnvNetworkPolicy);
  parser
      .option(
          "--egress",
          [&options](const std::string& word) -> std::optional<std::string> {
            auto rules = egress_from_text(word);
            if (!rules) return rules.error().message;
            options.settings.egress = std::move(*rules);
            return std::nullopt;
          },
          "NetworkPolicyEgressRules as a JSON list: what a job's pods may reach beside each other "
          "and DNS; empty: everything")
      .environment(contract::kEnvEgress);
  parser
      .option("--volcano", options.settings.volcano,
              "make Volcano's PodGroups for jobs that ask for them; Volcano must be installed")
      .show_default()
      .environment(contract::kEnvVolcano);
  parser
      .option("--kueue", options.settings.kueue,
              "take jobs that ask for Kueue; it needs the right to patch pods, to tell Kueue which "
              "groups are over")
      .show_default()
      .environment(contract::kEnvKueue);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, int& exit_code) {
  Options options;
  options.health_address = ":" + std::to_string(contract::kOperatorPort);
  options.webhook_address = ":" + std::to_string(kWebhookPort);
  ArgumentParser parser("Runs DeepSpeedJobs on a Kubernetes cluster.", "dsj-operator");
  watching(parser, options);
  serving(parser, options);
  webhook(parser, options);
  jobs(parser, options);
  if (const auto over = parser.parse(argc, argv)) {
    exit_code = *over == 0 ? 0 : contract::kExitBadInput;
    return std::nullopt;
  }
  if (!options.webhook_configuration.empty() && options.webhook_hosts.empty()) {
    std::cerr << "dsj-operator: --webhook needs --webhook-host\n";
    exit_code = contract::kExitBadInput;
    return std::nullopt;
  }
  if (!options.webhook_configuration.empty() && !options.webhook_certificates.empty()) {
    std::cerr << "dsj-operator: --webhook and --webhook-certificates exclude each other: one makes "
                 "certificates, the other reads them\n";
    exit_code = contract::kExitBadInput;
    return std::nullopt;
  }
  return options;
}

}  // namespace dsj::op
