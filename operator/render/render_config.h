// A job's objects except its pods: ConfigMap, headless Service, ServiceAccount, Role, RoleBinding,
// NetworkPolicy. Pure. Names follow from the job's name, and the job owns every object.
#pragma once

#include <string>
#include <vector>

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// `<job>-worker`: the name of all objects except the ConfigMap. The Service's name is the pods'
/// subdomain.
std::string shared_name(const std::string& job);
/// Worker 0's host name under the headless Service.
std::string worker_zero_host(const JobView& job);
/// `<job>-config-<revision>`.
std::string config_map_name(const std::string& job, const std::string& revision);
/// The ServiceAccount of the pods: the template's own, or else shared_name().
std::string service_account_of(const jobspec::Job& job, const std::string& name);

/// The objects, in the order in which they are needed.
std::vector<Create> render_config(const Observed& observed, const Accepted& accepted);

/// The metadata of an object of this job: name, namespace, labels, owner.
Json metadata_of(const JobView& job, const std::string& name);

}  // namespace dsj::op
