// The scheduling group of a gang (spec.runPolicy.schedulingPolicy): all its pods get their nodes
// together or none does. Volcano: a PodGroup (scheduling.volcano.sh/v1beta1: minMember, queue,
// priorityClassName) that pods name by the annotation scheduling.k8s.io/group-name. Kueue: labels
// kueue.x-k8s.io/queue-name and pod-group-name and the annotation pod-group-total-count, of which
// its own webhook makes a Workload. Pure.
#pragma once

#include "operator/observed.h"
#include "operator/plan.h"

namespace dsj::op {

/// `<job>-<scheduler>-<first incarnation>`: another run has another group, because that of a run
/// that ended is over for its scheduler. Empty: no policy.
std::string gang_name(const jobspec::Job& job, const std::string& name, int64_t first_incarnation);
/// Of the scheduler that the job asks for now.
bool is_gang_of(const jobspec::Job& job, const std::string& name, const std::string& gang);

/// The object that the group is; nothing where pods alone say it.
std::optional<Create> render_gang(const JobView& job, const Accepted& accepted,
                                  const std::string& gang);

/// What a pod of the group carries.
void enter_gang(const jobspec::Job& job, const std::string& gang, Json& metadata, Json& spec);

}  // namespace dsj::op
