#include "job/worker_job.h"

#include <nlohmann/json.hpp>

#include "job/contract.h"

namespace dsj {

using nlohmann::json;

bool WorkerJob::operator==(const WorkerJob& other) const {
  return to_text(*this) == to_text(other);
}

std::vector<std::string> installed_agent_command(const std::string& directory) {
  const auto at = [&](const char* name) { return directory + "/" + name; };
  return {at(contract::kInstalledLoader), "--inhibit-cache", "--library-path",
          at(contract::kInstalledLibraries), at(contract::kInstalledAgent)};
}

std::string worker_pod_name(const std::string& job, int worker, int64_t incarnation) {
  return job + "-worker-" + std::to_string(worker) + "-" + std::to_string(incarnation);
}

std::string to_text(const WorkerJob& job) {
  const json object = {{"version", kWorkerJobVersion},
                       {"job", to_json(job.job)},
                       {"replicas", job.replicas},
                       {"slots", job.slots},
                       {"restartLimit", job.restart_limit},
                       {"saveTimeoutMs", job.save_timeout.count()},
                       {"stepTimeoutMs", job.step_timeout.count()}};
  return object.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<WorkerJob> worker_job_from_text(const std::string& text, const std::string& source) {
  WorkerJob result;
  try {
    const json object = json::parse(text);
    const int version = object.value("version", 0);
    if (version < kWorkerJobVersion - 1 || version > kWorkerJobVersion) {
      return bad_input("version " + std::to_string(version) + ", expected " +
                           std::to_string(kWorkerJobVersion - 1) + " or " +
                           std::to_string(kWorkerJobVersion),
                       source, "the worker's image and the operator are of releases too far apart");
    }
    auto job = job_file_from_json(object.at("job"));
    if (!job) return bad_input(job.error().to_string(), source);
    result.job = std::move(*job);
    result.replicas = object.at("replicas");
    result.slots = object.at("slots");
    const auto time = [&](const char* name, std::chrono::milliseconds& value) {
      value = std::chrono::milliseconds(object.value(name, int64_t{value.count()}));
    };
    result.restart_limit = object.value("restartLimit", result.restart_limit);
    time("saveTimeoutMs", result.save_timeout);
    time("stepTimeoutMs", result.step_timeout);
  } catch (const json::exception& error) {
    return bad_input(error.what(), source, "this file is written by the operator");
  }
  if (result.replicas < 1 || result.slots < 1 || result.restart_limit < 0 ||
      result.save_timeout.count() < 1 || result.step_timeout.count() < 1) {
    return bad_input(
        "replicas, slots, restartLimit, saveTimeoutMs or stepTimeoutMs is out of range", source);
  }
  return result;
}

}  // namespace dsj
