#include "agent/orphan.h"

#include "job/contract.h"
#include "job/report/run_end.h"
#include "job/report/status.h"
#include "job/spec/yaml.h"

namespace dsj::agent {

using nlohmann::json;

Result<std::string> with_end(const std::string& status, const std::string& source,
                             const LastReports& last, const std::string& now) {
  DSJ_TRY(const auto document, jobspec::parse_yaml(status, source));
  json object = document.value;
  if (!object.is_object()) return bad_input("is not a status", source);
  if (last.saved) {
    report::Saved saved{.time = now, .checkpoint = last.saved};
    if (last.world_size > 0) saved.world_size = last.world_size;
    object[report::kCheckpoint][report::kLastSaved] = status_json(saved);
  }
  report::End end = *last.end;
  end.message = "dsj run is gone, perhaps killed; " + end.message;
  if (end.exit_code == contract::kExitPreempted) end.reason = "SupervisorLost";
  report::set_end(object, end, now);
  return jobspec::to_yaml(object);
}

Status write_end(Files& files, const std::string& output_dir, const LastReports& last,
                 const std::string& now) {
  if (!last.end) return {};
  const std::string path = path_join(output_dir, contract::kStatusFile);
  DSJ_TRY(const std::string before, files.read_all(path));
  DSJ_TRY(const std::string after, with_end(before, path, last, now));
  return files.write_atomically(path, after);
}

}  // namespace dsj::agent
