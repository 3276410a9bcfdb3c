#include "job/spec/stored_job.h"

#include "job/contract.h"

namespace dsj::jobspec {

using dsconfig::Finding;

std::map<std::string, std::string> stored_data(const Job& job, const StoredTexts& texts) {
  const WorkerJob worker_job{.job = to_job_file(job, 1, job.world_size()),
                             .replicas = job.replicas,
                             .slots = job.slots_per_worker};
  std::map<std::string, std::string> data = {{contract::kWorkerJobFile, to_text(worker_job)},
                                             {kStoredSpec, texts.spec}};
  if (!texts.config.empty()) data[kDsConfigKey] = texts.config;
  if (!texts.worker_template.empty()) data[kStoredTemplate] = texts.worker_template;
  return data;
}

std::optional<Finding> check_stored_size(const Job& job, const StoredTexts& texts) {
  size_t bytes = 0;
  std::string parts;
  for (const auto& [key, text] : stored_data(job, texts)) {
    bytes += text.size();
    parts += (parts.empty() ? "" : ", ") + key + " " + std::to_string(text.size());
  }
  if (bytes <= kStoredBytesMax) return std::nullopt;
  return Finding{Finding::Severity::Error, "spec",
                 "found " + std::to_string(bytes) + " bytes (" + parts + "), expected at most " +
                     std::to_string(kStoredBytesMax) +
                     ": the job's ConfigMap would be larger than Kubernetes allows",
                 "shorten the ds_config, which is in both spec.json and job.json, or put long "
                 "values of the pod template into a ConfigMap of your own"};
}

}  // namespace dsj::jobspec
