#include "job/report/run_end.h"

#include "job/contract.h"

namespace dsj::report {

using nlohmann::json;

void set_condition(json& status, const char* type, bool value, const std::string& reason,
                   const std::string& message, const std::string& now) {
  const char* text = value ? "True" : "False";
  json& all = status["conditions"];
  if (!all.is_array()) all = json::array();
  for (auto& entry : all) {
    if (!entry.is_object() || entry.value("type", "") != type) continue;
    if (entry.value("status", "") != text) entry["lastTransitionTime"] = now;
    entry["status"] = text;
    entry["reason"] = reason;
    entry["message"] = message;
    return;
  }
  all.push_back({{"type", type},
                 {"status", text},
                 {"reason", reason},
                 {"message", message},
                 {"lastTransitionTime", now}});
}

void set_end(json& status, const End& end, const std::string& now) {
  set_condition(status, "Running", false, end.reason, end.message, now);
  set_condition(status, "Restarting", false, end.reason, end.message, now);
  if (end.exit_code == contract::kExitPreempted) {
    status["phase"] = "Interrupted";
    set_condition(status, "Interrupted", true, end.reason, end.message, now);
    return;
  }
  status["completionTime"] = now;
  const char* how = end.exit_code == contract::kExitDone ? "Complete" : "Failed";
  status["phase"] = how;
  set_condition(status, how, true, end.reason, end.message, now);
}

}  // namespace dsj::report
