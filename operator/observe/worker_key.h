// What the operator records about worker 0's keys (keys.h), in an annotation of the key set's
// ConfigMap.
// Tested by: tests/operator/keys_test.cc
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/times.h"

namespace dsj::op {

/// On a key set's ConfigMap, in addition to contract.h's kAnnotationKeys: the slot of a key whose
/// Secret is being created.
inline constexpr char kAnnotationKeyAnnounced[] = "training.dsj.dev/key-announced";

struct WorkerKey {
  int slot = 0;
  std::string uid;  ///< of its Secret
  Time made{};
};

std::string to_annotation(const std::vector<WorkerKey>& keys);
/// The keys, oldest first. Malformed entries are skipped.
std::vector<WorkerKey> keys_from(const std::string& annotation);
/// The announced slot; nullopt if there is none or the value is not a slot.
std::optional<int> announced_slot(const std::string& annotation);

}  // namespace dsj::op
