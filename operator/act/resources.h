// The API resources that the operator makes, watches and writes.
#pragma once

#include <string>

#include "kube/resource.h"

namespace dsj::op {

kube::Resource jobs_resource();
kube::Resource job_templates_resource();
/// Volcano's PodGroups.
kube::Resource pod_groups_resource();
/// The resource of a kind that a plan names.
kube::Resource resource_of(const std::string& kind);

}  // namespace dsj::op
