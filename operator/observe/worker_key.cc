#include "operator/observe/worker_key.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "job/join_keys.h"

namespace dsj::op {

using Json = nlohmann::json;

std::string to_annotation(const std::vector<WorkerKey>& keys) {
  Json list = Json::array();
  for (const WorkerKey& key : keys) {
    list.push_back({{"slot", key.slot}, {"uid", key.uid}, {"made", to_text(key.made)}});
  }
  return list.dump();
}

std::vector<WorkerKey> keys_from(const std::string& annotation) {
  std::vector<WorkerKey> keys;
  const Json list = Json::parse(annotation, nullptr, false);
  if (!list.is_array()) return keys;
  for (const Json& entry : list) {
    const auto slot = entry.find("slot"), uid = entry.find("uid"), made = entry.find("made");
    if (!entry.is_object() || slot == entry.end() || uid == entry.end() || made == entry.end() ||
        !slot->is_number_integer() || !uid->is_string() || !made->is_string()) {
      continue;
    }
    const auto time = time_from_text(made->get<std::string>());
    const auto number = slot->get<int64_t>();
    if (!time || number < 0 || number >= kKeySlots) continue;
    keys.push_back({static_cast<int>(number), uid->get<std::string>(), *time});
  }
  std::ranges::sort(keys, {}, &WorkerKey::made);
  return keys;
}

std::optional<int> announced_slot(const std::string& annotation) {
  int slot = -1;
  const char* end = annotation.data() + annotation.size();
  const auto read = std::from_chars(annotation.data(), end, slot);
  if (read.ec != std::errc() || read.ptr != end || slot < 0 || slot >= kKeySlots)
    return std::nullopt;
  return slot;
}

}  // namespace dsj::op
