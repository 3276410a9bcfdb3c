// The key by which worker 0's agent proves its identity to the other agents of its job. The
// operator makes one for each run of the gang (operator/render/keys.h): a Secret with the private
// key, which only worker 0's pod mounts, and the authority that signed its certificate, in every
// pod's environment (contract.h: kEnvJoinAuthority). The agents read both (agent/join/join_keys.h).
#pragma once

#include <chrono>

namespace dsj {

inline constexpr char kJoinKeyVolume[] = "dsj-keys";
inline constexpr char kJoinKeyMountPath[] = "/var/run/secrets/dsj-keys";
// File names under the mount path.
inline constexpr char kJoinChainFile[] = "chain.pem";
inline constexpr char kJoinKeyFile[] = "key.pem";

/// Longer than any run: the key is not renewed. Its Secret is deleted when the run is over.
inline constexpr std::chrono::hours kKeyLifetime{10 * 365 * 24};

/// How long worker 0's agent waits for its key. Operators create the key before the pod, so a key
/// that is still missing was deleted: the agent exits with this code and reason, and the operator
/// starts a new run with another key.
inline constexpr std::chrono::seconds kKeyPatience{30};
inline constexpr int kExitKeyMissing = 89;
inline constexpr char kReasonKeyMissing[] = "KeyMissing";

}  // namespace dsj
