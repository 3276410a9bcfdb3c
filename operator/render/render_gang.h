// The scheduling group of a gang (spec.runPolicy.schedulingPolicy): either all of its pods get
// nodes, or none does. Pure.
//
//   Volcano   a PodGroup (scheduling.volcano.sh/v1beta1: minMember, queue, priorityClassName); pods
//             name it with the annotation scheduling.k8s.io/group-name
//   Kueue     the labels kueue.x-k8s.io/queue-name and pod-group-name and the annotation
//             pod-group-total-count, from which Kueue's own webhook makes a Workload
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// `<job>-<scheduler>-<first incarnation>`; empty without a scheduling policy. Each run has its own
/// group, because a group ends with its run.
std::string gang_name(const jobspec::Job& job, const std::string& name, int64_t first_incarnation);
/// Whether `gang` is a group of the scheduler that the job currently names.
bool is_gang_of(const jobspec::Job& job, const std::string& name, const std::string& gang);

/// The group's object; nullopt if the pods alone define the group.
std::optional<Create> render_gang(const JobView& job, const Accepted& accepted,
                                  const std::string& gang);

/// Adds the fields that make a pod a member of the group.
void enter_gang(const jobspec::Job& job, const std::string& gang, Json& metadata, Json& spec);

}  // namespace dsj::op
