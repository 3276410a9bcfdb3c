// The operator's decision: what one pass does about one job. Pure. The same observation gives the
// same plan, and after a plan is carried out whole the next one is empty.
//
// A job of another controller (spec.managedBy) gets an empty plan: its status is that controller's, too.
//
// What must never happen (tests/operator/simulation_test.cc): Complete without the last words
// Completed from every worker, or from worker 0 for workers whose pods were collected; two pods of
// one worker that may both run; a pod of a suspended, finished or refused job; a status write when
// nothing changed; a running pod replaced because the operator's version changed.
#pragma once

#include "operator/observe/observed.h"
#include "operator/render/plan.h"

namespace dsj::op {

Plan reconcile(const Observed& observed, Time now);

}  // namespace dsj::op
