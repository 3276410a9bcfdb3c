#include "operator/render/keys.h"

#include <algorithm>

#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/render/render_config.h"

namespace dsj::op {

std::string key_secret_name(const std::string& job, int64_t run) {
  return job + "-dsj-key-" + std::to_string(run);
}

NewKey new_key(const JobView& job, int64_t run, const std::string& uid, Time now) {
  const std::string name = key_secret_name(job.name, run);
  return {.name = name,
          .metadata = metadata_of(job, name),
          .identity = job.ns + "/" + job.name,
          .host = worker_zero_host(job),
          .made = now,
          .run = run,
          .uid = uid};
}

NewKey with_another_name(NewKey key, const std::string& job) {
  const auto seconds = std::chrono::floor<Seconds>(key.made).time_since_epoch().count();
  key.run = std::max(key.run + 1, static_cast<int64_t>(seconds));
  key.name = key_secret_name(job, key.run);
  key.metadata["name"] = key.name;
  key.uid.clear();
  return key;
}

Json key_secret(const NewKey& key, const ServerCertificate& certificate) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", key.metadata},
          {"type", contract::kKeySecretType},
          {"immutable", true},
          {"stringData",
           {{kJoinChainFile, certificate.chain_pem}, {kJoinKeyFile, certificate.key_pem}}}};
}

Delete key_deletion(const std::string& job, int64_t run, const std::string& uid) {
  return {.kind = "Secret", .name = key_secret_name(job, run), .uid = uid};
}

Json key_volume(const std::string& job, int64_t run) {
  // Optional, so that the agent can report that the Secret is gone.
  return {
      {"projected",
       {{"sources",
         Json::array({{{"secret", {{"name", key_secret_name(job, run)}, {"optional", true}}}}})}}}};
}

void set_key(Json& pod, const std::string& job, int64_t run, const std::string& authority_pem) {
  for (Json& entry : pod["spec"]["containers"][0]["env"]) {
    if (entry["name"] == contract::kEnvJoinAuthority) entry["value"] = authority_pem;
    if (entry["name"] == contract::kEnvJoinRun) entry["value"] = std::to_string(run);
  }
  if (!pod["spec"].contains("volumes")) return;
  for (Json& volume : pod["spec"]["volumes"])
    if (volume["name"] == kJoinKeyVolume) volume.update(key_volume(job, run));
}

}  // namespace dsj::op
