#include "cli/cluster/diagnosis.h"

#include <algorithm>

#include "job/contract.h"
#include "job/spec/cluster_spec.h"

namespace dsj::cli {
namespace {

/// An operator sees a job in less time.
constexpr int64_t kUnseenSeconds = 30;

struct Rule {
  const char* type;
  const char* status;
  const char* reason;   ///< the condition's reason; "" matches any
  const char* message;  ///< a part of its message; "" matches any
  const char* todo;
};

/// The first matching rule applies.
constexpr Rule kRules[] = {
    {"Accepted", "False", "ConfigMapMissing", "",
     "create the ConfigMap that spec.deepspeed.configFrom names, with that key; the operator "
     "checks again by itself"},
    {"Accepted", "False", "TemplateMissing", "",
     "create the DeepSpeedJobTemplate that spec.workers.templateRef names (kubectl get "
     "deepspeedjobtemplates lists them); the operator checks again by itself"},
    {"Accepted", "False", "PodRefused", "",
     "the API server's version does not know this field of a pod, or not this value: correct "
     "workers.template (kubectl explain pod.spec lists what the server knows)"},
    {"Accepted", "False", "", "",
     "`dsj validate` on the manifest says the same with line numbers; edit the job"},
    {"Scheduled", "False", "Unschedulable", "Insufficient",
     "the nodes have less free than a worker requests: lower workers.template's resources or "
     "slotsPerWorker, free nodes, or wait"},
    {"Scheduled", "False", "Unschedulable", "persistentvolumeclaim",
     "a claim of workers.template is missing or not bound: kubectl get pvc"},
    {"Scheduled", "False", "Unschedulable", "untolerated taint",
     "add the toleration for the nodes' taint to workers.template.spec.tolerations"},
    {"Scheduled", "False", "Unschedulable", "didn't match Pod's node affinity",
     "no node fits nodeSelector or affinity of workers.template; nodes that were lost "
     "(failureHistory, NodeLost) are avoided until they are Ready"},
    {"Scheduled", "False", "Unschedulable", "", "the scheduler's message says what is missing"},
    {"Scheduled", "False", "QuotaExceeded", "",
     "raise the namespace's ResourceQuota or suspend another job; the operator tries again"},
    {"Scheduled", "False", "Forbidden", "",
     "an admission policy or missing right refuses the pods: see the message"},
    {"Scheduled", "False", "NameTaken", "",
     "another object has a name that the job needs: delete it, or rename the job"},
    {"Contested", "True", "", "",
     "another controller and the operator write the same object: exempt objects with the label "
     "app.kubernetes.io/managed-by=dsj-operator from it"},
    {"Scheduled", "False", "Invalid", "",
     "the API server refuses the pod made of workers.template: correct the field it names"},
    {"Initialized", "False", "ImagePullBackOff", "",
     "is the image's name right, is it in the registry, does the template name imagePullSecrets?"},
    {"Initialized", "False", "ContainerCannotStart", "",
     "the kubelet's message says what is missing: a volume, a ConfigMap, a command"},
    {"Initialized", "False", "Initializing", "",
     "the image of spec.initializers is running: kubectl logs POD -c initialize-model (or "
     "-dataset); runPolicy.activeDeadlineSeconds bounds it"},
    {"Initialized", "False", "WaitingForGang", "",
     "the pods run and the agents have not joined: a NetworkPolicy between the job's pods (ports "
     "29400 and up), or DNS of the headless Service; `dsj logs --worker 1` shows the attempts"},
    {"Progressing", "False", "NoReport", "",
     "agent 0 has not reported: look at `dsj logs` and at its node; after "
     "liveness.stepTimeoutSeconds a hanging attempt is ended by itself"},
    {"Failed", "True", "BackoffLimitExceeded", "",
     "the last failure shows why it keeps failing; fix the cause, then submit it under a "
     "new name with the same outputDir"},
    {"Failed", "True", "DeadlineExceeded", "", "raise runPolicy.activeDeadlineSeconds"},
    {"Failed", "True", "StartupDeadlineExceeded", "",
     "no attempt began in runPolicy.startupDeadlineSeconds: the conditions show what the job "
     "waited for"},
    {"Failed", "True", "FailurePolicy", "",
     "a rule of failurePolicy ended the job: see the last failure"},
    {"Failed", "True", "", "", "see the last failure"},
};

const Rule* rule_of(const Json& condition) {
  for (const Rule& rule : kRules) {
    if (word(condition, "type") == rule.type && word(condition, "status") == rule.status &&
        (!*rule.reason || word(condition, "reason") == rule.reason) &&
        word(condition, "message").contains(rule.message))
      return &rule;
  }
  return nullptr;
}

void from_failure(const Json& failure, std::vector<Advice>& all) {
  const std::string reason = word(failure, "reason"), code = word(failure, "exitCode");
  const std::string signal = word(failure, "signal");
  std::string todo;
  if (reason == "OOMKilled" || (signal == "9" && reason != "NodeLost")) {
    todo =
        "killed, most likely for memory: raise the memory limit of workers.template, or lower "
        "perDeviceTrainBatchSize; `dsj plan` predicts the bytes per rank";
  } else if (reason == "InitializerFailed") {
    todo =
        "the last log lines of the image are below: is storageUri right, does secretRef's Secret "
        "have the keys that the image reads, is there space on the volume?";
  } else if (code == "2") {
    todo = "the input is wrong and no attempt will help: the last lines name the file or the key";
  } else if (reason == contract::kReasonNotFinite) {
    todo =
        "losses, gradients or weights became nan or infinite: the last checkpoint is sound; go on "
        "from it with a lower learningRate, or look at the rows";
  } else if (code == "3") {
    todo = "the environment is wrong (a library, space, a permission): the last lines say which";
  } else if (reason == "NodeLost") {
    todo = "node " + word(failure, "node") + " went away: kubectl describe node";
  } else if (reason == "Evicted") {
    todo = "its node ran short of something (often ephemeral storage): kubectl describe the pod";
  } else {
    todo = "the last lines of the rank are below; its whole log is in the job's output directory";
  }
  all.push_back({"last failure: " + reason + (code.empty() ? "" : ", exit code " + code) +
                     (signal.empty() ? "" : ", signal " + signal) + ": " + word(failure, "message"),
                 todo});
}

}  // namespace

std::vector<Advice> diagnose(const Json& job, const std::vector<PodRef>& pods, int64_t now) {
  std::vector<Advice> all;
  const int64_t age = now - seconds_of(word(job, "metadata.creationTimestamp"));
  const Json* spec = find(job, "spec");
  if (const std::string other = spec ? jobspec::other_controller(*spec) : ""; !other.empty())
    return {{"the job is run by " + other + " (spec.managedBy)",
             "look there; without managedBy this cluster's operator runs the job"}};
  const bool unseen = word(job, "status.phase").empty();
  if (unseen && age > kUnseenSeconds)
    all.push_back({"no operator has taken up the job in " + std::to_string(age) + " s",
                   "is dsj-operator running (kubectl get pods -A -l "
                   "app.kubernetes.io/name=deepspeedjob), and does it watch this namespace "
                   "(watchNamespaces)?"});
  const bool behind =
      !unseen && whole(job, "status.observedGeneration") < whole(job, "metadata.generation");
  if (behind)
    all.push_back({"the operator has not seen the last change of the spec",
                   "it takes a second; if not, is dsj-operator running?"});
  if (find(job, "metadata.deletionTimestamp"))
    all.push_back({"the job is being deleted", "finalizers: kubectl get dsj -o yaml"});
  const std::string state = word(job, "status.phase");
  const bool stopped = state == "Suspended" || state == "Complete";
  for (const Json& condition : items(job, "status.conditions")) {
    const Rule* rule = rule_of(condition);
    if (!rule || (stopped && std::string(rule->type) != "Accepted")) continue;
    all.push_back({word(condition, "type") + " is " + word(condition, "status") + " (" +
                       word(condition, "reason") + "): " + word(condition, "message"),
                   rule->todo});
  }
  const Json* failure = find(job, "status.lastFailure");
  if (failure && state != "Complete") from_failure(*failure, all);
  if (const Json* damaged = find(job, "status.checkpoint.lastDamaged"))
    all.push_back(
        {"checkpoints were damaged: " + word(*damaged, "message"),
         "the run went on without them; look for the cause (a failing disk, a second "
         "writer, a full volume), then delete what was renamed, which nothing else removes"});
  if (state == "Failed" && pods.empty())
    all.push_back({"its pods are gone", "logs are in " + word(job, "spec.training.outputDir") +
                                            "/logs; runPolicy.cleanPodPolicy: Running keeps pods "
                                            "that have ended"});
  return all;
}

}  // namespace dsj::cli
