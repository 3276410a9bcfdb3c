// What the operator remembers of a key of worker 0's (keys.h), in an annotation of the set's ConfigMap.
// Tested by: tests/operator/keys_test.cc
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/observe/times.h"

namespace dsj::op {

/// On a set's ConfigMap beside contract.h's kAnnotationKeys: the slot of a key whose Secret is being made.
inline constexpr char kAnnotationKeyAnnounced[] = "training.dsj.dev/key-announced";

struct WorkerKey {
  int slot = 0;
  std::string uid;  ///< of its Secret
  Time made{};
};

std::string to_annotation(const std::vector<WorkerKey>& keys);
/// Oldest first. What is malformed is left out.
std::vector<WorkerKey> keys_from(const std::string& annotation);
/// nullopt: none is announced, or it is no slot.
std::optional<int> announced_slot(const std::string& annotation);

}  // namespace dsj::op
