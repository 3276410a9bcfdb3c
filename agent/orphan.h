// Worker 0's agent when `dsj run`, which maintains status.yaml, is gone: killed, or out of memory.
// The agents then get a signal and end, and this code writes the end, so that the status does not
// show Running forever.
#pragma once

#include <optional>
#include <string>

#include "common/files/files.h"
#include "job/report/reports.h"

namespace dsj::agent {

/// The last reports of worker 0's agent, whether or not they were read.
struct LastReports {
  std::optional<report::End> end;
  std::optional<report::Checkpoint> saved;
  int64_t world_size = 0;
};

/// The text of status.yaml with the end added. Error: the text is not a status.
Result<std::string> with_end(const std::string& status, const std::string& source,
                             const LastReports& last, const std::string& now);
/// Writes the end to OUT/status.yaml. `now` is RFC 3339. Does nothing if the job has not ended.
Status write_end(Files& files, const std::string& output_dir, const LastReports& last,
                 const std::string& now);

}  // namespace dsj::agent
