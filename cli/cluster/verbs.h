// The verbs against a cluster, as `dsj VERB` and as `kubectl dsj VERB`. One verb, one file. Exit
// codes: those of cli/verbs.h, and 4 not found, 5 forbidden, 6 unreachable.
#pragma once

#include "cli/cluster/session.h"

namespace dsj::cli {

/// The columns of the CRD, by the server; -w goes on with changes until interrupted.
int run_get(Arguments args, const Connect& connect = connect_to_cluster);
/// One job, for people.
int run_describe(Arguments args, const Connect& connect = connect_to_cluster);
/// The log of a rank.
int run_logs(Arguments args, const Connect& connect = connect_to_cluster);
/// Of output directories as run_plot(); of a job's logged steps when the name is no directory.
int run_plot_any(Arguments args, const Connect& connect = connect_to_cluster);
/// `as_plugin`: names are jobs, whatever directories there are.
int run_plot_jobs(Arguments args, const Connect& connect = connect_to_cluster);
int run_suspend(Arguments args, const Connect& connect = connect_to_cluster);
int run_resume(Arguments args, const Connect& connect = connect_to_cluster);
/// All that a colleague needs to see, without secrets.
int run_debug(Arguments args, const Connect& connect = connect_to_cluster);

}  // namespace dsj::cli
