#include "operator/render/keys.h"

#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/render/render_config.h"

namespace dsj::op {

std::string key_secret_name(const std::string& job, int64_t run) {
  return job + "-dsj-key-" + std::to_string(run);
}

NewKey new_key(const JobView& job, int64_t run, Time now) {
  const std::string name = key_secret_name(job.name, run);
  return {.name = name,
          .metadata = metadata_of(job, name),
          .identity = job.ns + "/" + job.name,
          .host = worker_zero_host(job),
          .made = now};
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

Delete key_deletion(const std::string& job, int64_t run) {
  return {.kind = "Secret", .name = key_secret_name(job, run), .uid = ""};
}

std::vector<Delete> key_set_deletions(const std::string& job, const ChildView& child) {
  constexpr int kSlots = 4;
  std::vector<Delete> all;
  for (int slot = 0; slot < kSlots; ++slot) {
    all.push_back({.kind = "Secret",
                   .name = job + "-dsj-key-" + child.key_set + "-" + std::to_string(slot),
                   .uid = ""});
  }
  all.push_back({.kind = child.kind, .name = child.name, .uid = child.uid});
  return all;
}

Json key_volume(const std::string& job, int64_t run) {
  // Optional, so that the agent can report that the Secret is gone.
  return {
      {"projected",
       {{"sources",
         Json::array({{{"secret", {{"name", key_secret_name(job, run)}, {"optional", true}}}}})}}}};
}

void set_authority(Json& pod, const std::string& authority_pem) {
  for (Json& entry : pod["spec"]["containers"][0]["env"])
    if (entry["name"] == contract::kEnvJoinAuthority) entry["value"] = authority_pem;
}

}  // namespace dsj::op
