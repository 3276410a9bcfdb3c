// The API resources that the operator creates, watches and writes.
#pragma once

#include <string>

#include "kube/api_error.h"
#include "kube/resource.h"

namespace dsj::op {

kube::Resource jobs_resource();
kube::Resource job_templates_resource();
/// Volcano's PodGroups.
kube::Resource pod_groups_resource();
/// The resource of a kind in a plan.
kube::Resource resource_of(const std::string& kind);

/// True if a create was refused because the namespace is being deleted and accepts no new objects.
bool namespace_ends(const kube::ApiError& error);

}  // namespace dsj::op
