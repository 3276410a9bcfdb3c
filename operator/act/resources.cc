#include "operator/act/resources.h"

#include <stdexcept>

#include "job/contract.h"
#include "job/spec/job.h"

namespace dsj::op {

kube::Resource jobs_resource() {
  return {contract::kGroup, contract::kVersion, contract::kPlural, contract::kKind, true};
}

kube::Resource job_templates_resource() {
  return {contract::kGroup, contract::kVersion, "deepspeedjobtemplates", "DeepSpeedJobTemplate",
          false};
}

kube::Resource pod_groups_resource() {
  return {"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"};
}

kube::Resource resource_of(const std::string& kind) {
  using namespace kube::resources;
  if (kind == "Pod") return pods();
  if (kind == "ConfigMap") return config_maps();
  if (kind == "Secret") return secrets();
  if (kind == "Service") return services();
  if (kind == "ServiceAccount") return service_accounts();
  if (kind == "Role") return roles();
  if (kind == "RoleBinding") return role_bindings();
  if (kind == "NetworkPolicy") return network_policies();
  if (kind == "PodGroup") return pod_groups_resource();
  if (kind != jobspec::kKind) throw std::logic_error("the operator makes no " + kind);
  return jobs_resource();
}

bool namespace_ends(const kube::ApiError& error) {
  return error.kind == kube::ApiError::Kind::Forbidden &&
         error.message.contains("unable to create new content in namespace") &&
         error.message.contains("because it is being terminated");
}

}  // namespace dsj::op
