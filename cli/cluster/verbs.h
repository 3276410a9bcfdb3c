// The verbs against a cluster, as `dsj VERB` and `kubectl dsj VERB`. One verb, one file. Exit
// codes: those of cli/verbs.h, and 4 not found, 5 forbidden, 6 unreachable.
#pragma once

#include "cli/cluster/session.h"

namespace dsj::cli {

/// Lists jobs in the CRD's columns, as the server prints them. -w watches until interrupted.
int run_get(Arguments args, const Connect& connect = connect_to_cluster);
/// Describes one job.
int run_describe(Arguments args, const Connect& connect = connect_to_cluster);
/// Prints the log of a rank.
int run_logs(Arguments args, const Connect& connect = connect_to_cluster);
/// Like run_plot() for output directories; plots the logged steps of a job if the name is not a
/// directory.
int run_plot_any(Arguments args, const Connect& connect = connect_to_cluster);
/// The same if names are always jobs, for kubectl's plugin.
int run_plot_jobs(Arguments args, const Connect& connect = connect_to_cluster);
int run_suspend(Arguments args, const Connect& connect = connect_to_cluster);
int run_resume(Arguments args, const Connect& connect = connect_to_cluster);
/// Creates a job after the checks of `dsj validate`.
int run_submit(Arguments args, const Connect& connect = connect_to_cluster);
/// Waits until a job has ended, runs, or has done or saved a step.
int run_wait(Arguments args, const Connect& connect = connect_to_cluster);
/// Prints how fast the running jobs train.
int run_top(Arguments args, const Connect& connect = connect_to_cluster);
/// Changes the number of workers.
int run_scale(Arguments args, const Connect& connect = connect_to_cluster);
/// Recreates all pods.
int run_restart(Arguments args, const Connect& connect = connect_to_cluster);
/// Replaces this process by `kubectl exec`. Returns only if that cannot be started.
int run_exec(Arguments args, const Connect& connect = connect_to_cluster);
/// Collects a support bundle, secrets removed.
int run_debug(Arguments args, const Connect& connect = connect_to_cluster);

}  // namespace dsj::cli
