#include "operator/options.h"

#include <iostream>
#include <regex>

#include "common/argument_parser.h"
#include "job/contract.h"
#include "operator/render/egress.h"
#include "operator/webhook/webhook.h"

namespace dsj::op {

namespace {

void watching(ArgumentParser& parser, Options& options) {
  parser.option("--kubeconfig", options.kubeconfig,
                "in a pod: its own account; else $KUBECONFIG or ~/.kube/config");
  parser
      .option("--namespace", options.namespaces,
              "watch only this namespace; repeat it, or write a,b")
      .separated_by(',')
      .environment(contract::kEnvWatchNamespaces);
  parser.option("--read-nodes", options.watch_nodes, "false: notice a lost node only by its pods")
      .show_default()
      .environment(contract::kEnvReadNodes);
}

void serving(ArgumentParser& parser, Options& options) {
  parser.flag("!--no-leader-election", options.leader_election,
              "do not elect a leader; only for a single replica");
  parser.option("--lease-namespace", options.lease_namespace, "namespace of the leader's Lease")
      .environment(contract::kEnvNamespace);
  parser.option("--lease-name", options.lease_name, "name of the leader's Lease")
      .show_default()
      .environment(contract::kEnvLeaseName);
  parser
      .option("--identity", options.identity,
              "name of this process in the Lease (default: the host's name)")
      .environment(contract::kEnvPodName);
  parser
      .option("--health-address", options.health_address,
              "address of /healthz, /readyz and /metrics; empty: none")
      .show_default();
  parser
      .option(
          "--metrics-address", options.metrics_address,
          "address of /metrics over HTTPS, for tokens that may get /metrics; empty: at the health "
          "address, without authentication")
      .environment(kEnvMetricsAddress);
}

void webhook(ArgumentParser& parser, Options& options) {
  parser
      .option(
          "--webhook", options.webhook_configuration,
          "ValidatingWebhookConfiguration whose caBundle the operator maintains; empty: no webhook")
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
  parser.option("--webhook-address", options.webhook_address, "address of the webhook (HTTPS)")
      .show_default();
}

/// A securityContext as one JSON object.
auto security_context(Json& context) {
  return [&context](const std::string& word) -> std::optional<std::string> {
    Json read = Json::parse(word, nullptr, false);
    if (!read.is_object()) return "expected a JSON object";
    context = std::move(read);
    return std::nullopt;
  };
}

void jobs(ArgumentParser& parser, Options& options) {
  parser.option("--workers", options.workers, "jobs that are reconciled at the same time")
      .show_default()
      .from_to(1, 64);
  parser
      .option("--worker-image", options.settings.worker_image,
              "image of workers whose template names none")
      .show_default()
      .environment(contract::kEnvWorkerImage);
  parser
      .option("--image-pull-policy", options.settings.image_pull_policy,
              "pull policy of that image; empty: Kubernetes' default")
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
          "size limit of a worker's /tmp, unless its template mounts one [10Gi]; 0: no limit")
      .environment(contract::kEnvTmpSizeLimit);
  parser
      .option("--pod-security-context", security_context(options.settings.pod_security),
              "securityContext of workers' pods, as JSON, where a template says nothing "
              "[runAsNonRoot, seccompProfile RuntimeDefault]")
      .environment(kEnvPodSecurityContext);
  parser
      .option("--security-context", security_context(options.settings.container_security),
              "the same of workers' containers [no privilege escalation, no capabilities, a "
              "read-only root]")
      .environment(kEnvSecurityContext);
  parser
      .option("--default-template", options.settings.default_template,
              "DeepSpeedJobTemplate of jobs that name none, when they are created or edited")
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
          "mark on a node that an agent found unfit: none, annotate, or taint, which keeps all new "
          "pods away [none]")
      .environment(kEnvMarkNodes);
  parser
      .option("--network-policy", options.settings.network_policy,
              "a NetworkPolicy per job: its pods reach each other, other pods only its metrics")
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
          "NetworkPolicyEgressRules as a JSON list: what a job's pods may reach besides each other "
          "and DNS; empty: everything")
      .environment(contract::kEnvEgress);
  parser
      .option("--volcano", options.settings.volcano,
              "accept jobs that use Volcano, and create their PodGroups; Volcano must be installed")
      .show_default()
      .environment(contract::kEnvVolcano);
  parser
      .option("--kueue", options.settings.kueue,
              "accept jobs that use Kueue; the operator needs the right to patch pods")
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
