// A credential plugin: the program that a kubeconfig names under `user.exec` and that prints an ExecCredential
// (client.authentication.k8s.io v1 and v1beta1), by client-go's rules. EKS, GKE, AKS and OpenID Connect use
// one. This builds its input and parses its output, both pure; kube/plugin_source.h runs it.
// Tested by: tests/kube/exec_plugin_test.cc
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/result.h"

namespace dsj::kube {

struct ExecPlugin {
  enum class Stdin { Never, IfAvailable, Always };
  std::string api_version;  ///< "client.authentication.k8s.io/v1" or ".../v1beta1"
  std::string command;      ///< with a '/': an absolute path
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
  std::string install_hint;  ///< with control characters made visible
  Stdin stdin_mode = Stdin::IfAvailable;
  /// provideClusterInfo: the cluster as the plugin gets it, JSON; empty if it gets none.
  std::string cluster_info;
  std::string where;  ///< for messages: user "me" of FILE
};

/// The credential from a plugin. Never logged.
struct ExecCredential {
  std::string token;
  std::string certificate_pem, key_pem;  ///< both or neither
  /// Unset: valid until the server refuses it.
  std::optional<std::chrono::system_clock::time_point> expires;
};

inline constexpr char kExecInfoVariable[] = "KUBERNETES_EXEC_INFO";

/// The text of KUBERNETES_EXEC_INFO. `interactive`: the plugin gets our stdin.
std::string exec_info(const ExecPlugin& plugin, bool interactive);

/// Parses the plugin's output. Errors never quote it, because it may be a secret.
Result<ExecCredential> read_exec_credential(const ExecPlugin& plugin, const std::string& output);

/// "2026-01-31T12:00:00.5+02:00" (RFC 3339); nullopt if it is not such a time.
std::optional<std::chrono::system_clock::time_point> rfc3339_time(const std::string& text);

}  // namespace dsj::kube
