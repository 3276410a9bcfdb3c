// A job's pods per worker, and their logs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/cluster/json_path.h"
#include "cli/cluster/session.h"

namespace dsj::cli {

struct PodRef {
  std::string name;
  int64_t worker = 0;
  int64_t incarnation = 0;
  Json object;
};

/// Sorted by worker, then by incarnation: a worker's newest pod is its last.
kube::ApiResult<std::vector<PodRef>> pods_of(Session& session, const std::string& job);

/// Whether the pod's container "worker" has started, and so has a log.
bool has_log(const PodRef& pod);
/// Whether that container runs now.
bool is_running(const PodRef& pod);

/// Calls `line` for each line until the log ends or `line` returns false.
kube::ApiResult<void> read_log(Session& session, const std::string& pod, kube::LogOptions options,
                               const std::function<bool(const std::string&)>& line);

/// The text after "[rank N] "; nullptr if the line belongs to another rank or to none.
const char* line_of_rank(const std::string& line, const std::string& prefix);
std::string rank_prefix(int64_t rank);

}  // namespace dsj::cli
