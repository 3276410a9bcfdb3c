#include "operator/render/keys.h"

#include <algorithm>
#include <charconv>

#include "job/contract.h"
#include "job/join_keys.h"
#include "operator/render/render_config.h"

namespace dsj::op {
namespace {

/// The slots without a key, starting after the newest key's slot.
std::vector<int> free_slots(const std::vector<WorkerKey>& keys) {
  std::vector<int> free;
  const int first = keys.empty() ? 0 : keys.back().slot + 1;
  for (int i = 0; i < kKeySlots; ++i) {
    const int slot = (first + i) % kKeySlots;
    if (std::ranges::find(keys, slot, &WorkerKey::slot) == keys.end()) free.push_back(slot);
  }
  return free;
}

}  // namespace

KeyPlan plan_keys(std::vector<WorkerKey> keys, Time now, std::optional<Time> lost_before) {
  std::ranges::sort(keys, {}, &WorkerKey::made);
  KeyPlan plan{.keep = keys};
  if (lost_before && !keys.empty() && keys.back().made < *lost_before) {
    // They are no longer trusted: whoever deleted a key may have read it.
    return {.make = true, .keep = {}, .drop = std::move(keys), .again = {}};
  }
  if (keys.empty() || now >= keys.back().made + kKeyRenewAfter) {
    plan.make = true;
    // The newest old key is used until the new one is known everywhere.
    while (plan.keep.size() > 1) {
      plan.drop.push_back(plan.keep.front());
      plan.keep.erase(plan.keep.begin());
    }
    return plan;
  }
  plan.again = keys.back().made + kKeyRenewAfter;
  if (keys.size() == 1) return plan;
  const Time retire = keys.back().made + kKeyRetire;
  if (now < retire) {
    plan.again = retire;
    return plan;
  }
  plan.drop.assign(keys.begin(), keys.end() - 1);
  plan.keep = {keys.back()};
  return plan;
}

int64_t run_of(const std::string& set) {
  int64_t run = 0;
  std::from_chars(set.data(), set.data() + set.size(), run);
  return run;
}

std::string key_set_name(const std::string& job, const std::string& set) {
  return job + "-keys-" + set;
}

std::string key_secret_name(const std::string& job, const std::string& set, int slot) {
  return job + "-dsj-key-" + set + "-" + std::to_string(slot);
}

KeyChange key_change(const JobView& job, const std::string& set, const ChildView* seen,
                     const KeyPlan& plan, Time now) {
  KeyChange change{.job = job.name,
                   .set = set,
                   .metadata = metadata_of(job, key_set_name(job.name, set)),
                   .version = seen ? seen->resource_version : "",
                   .host = worker_zero_host(job),
                   .made = now,
                   .keep = plan.keep,
                   .drop = plan.drop,
                   .half_made = seen ? seen->key_announced : std::nullopt};
  change.metadata["labels"][contract::kLabelKeys] = set;
  if (plan.make) change.slots = free_slots(plan.keep.empty() ? plan.drop : plan.keep);
  std::erase_if(change.slots, [&](int slot) {
    return std::ranges::find(plan.drop, slot, &WorkerKey::slot) != plan.drop.end();
  });
  // The ConfigMap already refers to the announced slot, or another key now has it.
  if (std::ranges::count(change.slots, change.half_made.value_or(-1)) == 0) {
    change.half_made.reset();
  }
  return change;
}

Delete key_deletion(const std::string& job, const std::string& set, const WorkerKey& key) {
  return {.kind = "Secret", .name = key_secret_name(job, set, key.slot), .uid = key.uid};
}

Json key_announcement(const KeyChange& change, int slot) {
  return {{"metadata",
           {{"resourceVersion", change.version},
            {"annotations", {{kAnnotationKeyAnnounced, std::to_string(slot)}}}}}};
}

Json key_secret(const KeyChange& change, const std::string& name, int slot,
                const std::string& chain_pem, const std::string& key_pem) {
  Json metadata = change.metadata;
  metadata["name"] = name;
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata", std::move(metadata)},
          {"type", contract::kKeySecretType},
          {"immutable", true},
          {"stringData", {{chain_file(slot), chain_pem}, {key_file(slot), key_pem}}}};
}

Json key_config(const KeyChange& change, const std::optional<WorkerKey>& made,
                const std::string& authority_pem) {
  std::vector<WorkerKey> keys = change.keep;
  Json data = Json::object();
  if (made) {
    keys.push_back(*made);
    data[authority_file(made->slot)] = authority_pem;
  }
  Json annotations = {{contract::kAnnotationKeys, to_annotation(keys)}};
  if (!change.version.empty()) {
    annotations[kAnnotationKeyAnnounced] = nullptr;
    for (const WorkerKey& key : change.drop) data[authority_file(key.slot)] = nullptr;
    return {{"metadata", {{"resourceVersion", change.version}, {"annotations", annotations}}},
            {"data", std::move(data)}};
  }
  Json metadata = change.metadata;
  metadata["annotations"] = annotations;
  return {{"apiVersion", "v1"},
          {"kind", "ConfigMap"},
          {"metadata", std::move(metadata)},
          {"data", std::move(data)}};
}

Json key_volume(const std::string& job, const std::string& set, int worker) {
  Json sources = Json::array({{{"configMap", {{"name", key_set_name(job, set)}}}}});
  // Optional, because keys come and go while the pod runs; the agent waits for its first key.
  for (int slot = 0; worker == 0 && slot < kKeySlots; ++slot) {
    sources.push_back(
        {{"secret", {{"name", key_secret_name(job, set, slot)}, {"optional", true}}}});
  }
  return {{"projected", {{"sources", std::move(sources)}}}};
}

}  // namespace dsj::op
