// The keys by which worker 0's agent proves itself to the other agents of its job. The operator makes
// them and mounts them (operator/render/keys.h); the agents read them (agent/join/join_keys.h). A key lies in
// a slot. The ConfigMap that every pod mounts has each slot's authority; the private keys are in
// Secrets that worker 0's pod alone mounts.
#pragma once

#include <chrono>
#include <string>

namespace dsj {

inline constexpr char kJoinKeysMountPath[] = "/var/run/secrets/dsj-keys";
/// A pod names the Secrets of all slots when it is made, and a key that comes later appears there.
inline constexpr int kKeySlots = 4;

// A key's life. The kubelet brings a new file to a running pod within minutes; clocks differ by less.
inline constexpr std::chrono::hours kKeyLifetime{365 * 24};   ///< so long an operator may be away
inline constexpr std::chrono::hours kKeyRenewAfter{30 * 24};  ///< then the next one is made
inline constexpr std::chrono::hours kKeySpread{24};  ///< then worker 0 shows it: all pods know it
inline constexpr std::chrono::hours kKeyRetire{48};  ///< then the one before it is trusted no more

/// How long worker 0's agent waits for its first key. Operators make keys before pods, so one that is not there by
/// then was taken away: the agent ends with this code and reason, and the operator makes another key.
inline constexpr std::chrono::seconds kKeyPatience{30};
inline constexpr int kExitKeyMissing = 89;
inline constexpr char kReasonKeyMissing[] = "KeyMissing";

// File names below the mount.
inline std::string authority_file(int slot) {
  return "authority-" + std::to_string(slot) + ".pem";
}
inline std::string chain_file(int slot) {
  return "chain-" + std::to_string(slot) + ".pem";
}
inline std::string key_file(int slot) {
  return "key-" + std::to_string(slot) + ".pem";
}

}  // namespace dsj
