// The API resources that the operator makes, watches and writes.
#pragma once

#include <string>

#include "kube/api_error.h"
#include "kube/resource.h"

namespace dsj::op {

kube::Resource jobs_resource();
kube::Resource job_templates_resource();
/// Volcano's PodGroups.
kube::Resource pod_groups_resource();
/// The resource of a kind that a plan names.
kube::Resource resource_of(const std::string& kind);

/// Whether an object was refused because its namespace is being deleted, and none will be taken any more.
bool namespace_ends(const kube::ApiError& error);

}  // namespace dsj::op
