#include "job/spec/fields.h"

namespace dsj::jobspec {

const std::map<std::string, std::vector<std::string>>& manifest_fields() {
  static const std::map<std::string, std::vector<std::string>> table = {
      {"", {"apiVersion", "kind", "metadata", "spec", "status"}},
      {"metadata",
       {"name", "namespace", "labels", "annotations", "generateName", "uid", "generation",
        "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
        "managedFields", "finalizers", "ownerReferences", "selfLink"}},
      {"spec",
       {"deepspeed", "training", "workers", "launcher", "restartPolicy", "backoffLimit", "suspend",
        "initializers", "parallelism", "model", "elastic", "elasticPolicy", "runPolicy",
        "failurePolicy", "liveness", "checkpoint", "network"}},
      {"spec.deepspeed", {"config", "configFrom"}},
      {"spec.deepspeed.configFrom", {"file", "configMapKeyRef"}},
      {"spec.deepspeed.configFrom.configMapKeyRef", {"name", "key"}},
      {"spec.workers",
       {"replicas", "slotsPerWorker", "minReplicas", "maxReplicas", "template", "templateRef",
        "topology"}},
      {"spec.workers.templateRef", {"name"}},
      {"spec.workers.topology", {"key", "mode"}},
      {"spec.initializers", {"model", "dataset"}},
      {"spec.initializers.model",
       {"storageUri", "image", "command", "args", "env", "secretRef", "resources"}},
      {"spec.initializers.dataset",
       {"storageUri", "image", "command", "args", "env", "secretRef", "resources"}},
      {"spec.initializers.model.secretRef", {"name"}},
      {"spec.initializers.dataset.secretRef", {"name"}},
      {"spec.parallelism", {"tensor", "pipeline", "sequence", "expert"}},
      {"spec.runPolicy",
       {"activeDeadlineSeconds", "startupDeadlineSeconds", "recoveryDeadlineSeconds",
        "ttlSecondsAfterFinished", "cleanPodPolicy", "schedulingPolicy"}},
      {"spec.runPolicy.schedulingPolicy",
       {"scheduler", "queue", "priorityClass", "minAvailable", "scheduleTimeoutSeconds"}},
      {"spec.failurePolicy", {"rules", "nodeFailure", "nodeHealth"}},
      {"spec.failurePolicy.rules[]",
       {"name", "action", "onExitCodes", "onReasons", "onPodConditions"}},
      {"spec.failurePolicy.rules[].onExitCodes", {"operator", "values"}},
      {"spec.failurePolicy.nodeFailure",
       {"graceSeconds", "forceDeleteAfterSeconds", "excludeFailedNodes"}},
      {"spec.failurePolicy.nodeHealth", {"action", "avoidSeconds", "minPeerBandwidthPercent"}},
      {"spec.elastic", {"minReplicas", "maxReplicas", "shrinkAfterSeconds", "growAfterSeconds"}},
      {"spec.liveness", {"stepTimeoutSeconds"}},
      {"spec.checkpoint", {"onSuspend"}},
      {"spec.checkpoint.onSuspend", {"timeoutSeconds"}},
  };
  return table;
}

}  // namespace dsj::jobspec
