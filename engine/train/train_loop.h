// The loop over a run's steps, from its first rows to the exported model: reads, trains, evaluates,
// saves and stops.
// Tested by: tests/run/train_run_test.cc
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "common/result.h"
#include "engine/comm/collectives.h"
#include "engine/train/inputs/events.h"
#include "engine/train/inputs/inputs.h"
#include "engine/train/inputs/metric_rows.h"
#include "engine/train/state/saving.h"
#include "engine/train/step/finite_guard.h"
#include "engine/train/step/references.h"
#include "engine/train/step/run_state.h"
#include "engine/train/step/step.h"
#include "engine/train/watching.h"
#include "engine/zero/flat/groups.h"
#include "job/flight_log.h"

namespace dsj::train {

/// The objects that the steps use. All must outlive the loop.
struct RunParts {
  const Inputs& inputs;
  const MetricRows* chosen;      ///< null without a curriculum by metrics
  const References* references;  ///< null if the objective has none
  Stepper& stepper;
  Saver& saver;
  FiniteGuard& guard;
  const Events& events;
  Watching& watching;
  comm::Collectives& collectives;
  zero::RunGroups& groups;
  at::Device device;
  FlightLog& flight;
  std::string startup_file;
};

/// Trains from `progress` to the planned end. Returns the exit code: done, preempted, or not
/// finite. Error: the run cannot continue. Collective: all ranks.
Result<int> run_steps(const RunParts& parts, const Progress& progress);

}  // namespace dsj::train
