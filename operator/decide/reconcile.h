// The operator's decision: what one pass does about one job. Pure. The same observation gives the
// same plan, and once a plan is carried out completely, the next plan is empty.
//
// A job of another controller (spec.managedBy) gets an empty plan, because that controller also
// owns its status.
//
// Invariants (tests/operator/simulation_test.cc): a job is Complete only if every worker's agent
// reported Completed, or one of them did for workers whose pods were collected; no two pods of one
// worker may run at once; a suspended, finished or refused job has no pods; the status is written
// only if it changed; an upgrade of the operator replaces no running pod.
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

Plan reconcile(const Observed& observed, Time now);

}  // namespace dsj::op
