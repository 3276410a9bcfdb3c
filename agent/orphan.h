// Worker 0's agent where `dsj run`, which keeps status.yaml, is gone: killed, or without memory. The
// agents end by the signal that they get then, and this writes how, so that the status does not say
// Running for ever.
#pragma once

#include <optional>
#include <string>

#include "common/files/files.h"
#include "job/report/reports.h"

namespace dsj::agent {

/// What worker 0's agent told last, whether or not anybody read it.
struct LastReports {
  std::optional<report::End> end;
  std::optional<report::Checkpoint> saved;
  int64_t world_size = 0;
};

/// status.yaml's text with the end in it. Error: the text is no status.
Result<std::string> with_end(const std::string& status, const std::string& source,
                             const LastReports& last, const std::string& now);
/// Writes it into OUT/status.yaml. `now`: RFC 3339. Does nothing where the job has not ended.
Status write_end(Files& files, const std::string& output_dir, const LastReports& last,
                 const std::string& now);

}  // namespace dsj::agent
