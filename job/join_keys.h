// The keys by which worker 0's agent proves its identity to the other agents of its job. The
// operator creates and mounts them (operator/render/keys.h); the agents read them
// (agent/join/join_keys.h). Keys are numbered by slot. Every pod mounts a ConfigMap with each
// slot's authority; only worker 0's pod mounts the Secrets with the private keys.
#pragma once

#include <chrono>
#include <string>

namespace dsj {

inline constexpr char kJoinKeysMountPath[] = "/var/run/secrets/dsj-keys";
/// A pod names the Secrets of all slots when it is created; a later key appears in a free slot.
inline constexpr int kKeySlots = 4;

// Lifetime of a key. The kubelet updates mounted files within minutes; clocks differ by less.
inline constexpr std::chrono::hours kKeyLifetime{365 * 24};   ///< an operator may be away so long
inline constexpr std::chrono::hours kKeyRenewAfter{30 * 24};  ///< age at which the next one is made
inline constexpr std::chrono::hours kKeySpread{24};  ///< worker 0 then uses it: all pods have it
inline constexpr std::chrono::hours kKeyRetire{48};  ///< the previous key is then no longer trusted

/// How long worker 0's agent waits for its first key. Operators create keys before pods, so a key that is still
/// missing was deleted: the agent exits with this code and reason, and the operator creates another key.
inline constexpr std::chrono::seconds kKeyPatience{30};
inline constexpr int kExitKeyMissing = 89;
inline constexpr char kReasonKeyMissing[] = "KeyMissing";

// File names under the mount path.
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
