// The scheduling group of a gang (spec.runPolicy.schedulingPolicy): all its pods get nodes
// together, or none does. Pure.
//
//   Volcano   a PodGroup (scheduling.volcano.sh/v1beta1: minMember, queue, priorityClassName); pods
//             name it by the annotation scheduling.k8s.io/group-name
//   Kueue     the labels kueue.x-k8s.io/queue-name and pod-group-name and the annotation
//             pod-group-total-count, of which Kueue's own webhook makes a Workload
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

/// `<job>-<scheduler>-<first incarnation>`; empty: no policy. Each run has a group of its own,
/// because for the scheduler a group ends with its run.
std::string gang_name(const jobspec::Job& job, const std::string& name, int64_t first_incarnation);
/// Whether `gang` is a group for the scheduler that the job asks for now.
bool is_gang_of(const jobspec::Job& job, const std::string& name, const std::string& gang);

/// The group's object; nullopt if the pods alone make the group.
std::optional<Create> render_gang(const JobView& job, const Accepted& accepted,
                                  const std::string& gang);

/// Adds to a pod what makes it a member of the group.
void enter_gang(const jobspec::Job& job, const std::string& gang, Json& metadata, Json& spec);

}  // namespace dsj::op
