// Keeps the credential of a plugin until it expires or the server refuses it. Thread-safe: only one
// run of the plugin at a time, because it may ask its user for input.
// Tested by: tests/kube/plugin_source_test.cc
#pragma once

#include <expected>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "kube/exec_plugin.h"
#include "kube/program.h"

namespace dsj::kube {

/// A plugin may open a browser and wait for a login.
inline constexpr std::chrono::minutes kPluginTime{5};

class PluginSource {
 public:
  using Wall = std::chrono::system_clock;
  struct Issued {
    ExecCredential credential;
    int64_t generation = 0;  ///< rises with every run of the plugin
  };
  /// The plugin's environment, replaceable in tests.
  struct Surroundings {
    std::function<Wall::time_point()> now = Wall::now;
    /// Whether stdin is a terminal.
    std::function<bool()> terminal;
  };

  PluginSource(ExecPlugin plugin, Programs& programs, Surroundings surroundings);

  /// Runs the plugin if there is no valid credential. NetError::Credentials if it provided none.
  std::expected<Issued, NetError> current(const Cancel& cancel);
  /// The server answered 401 to `generation`: current() then reruns the plugin, once per generation.
  void refused(int64_t generation);

 private:
  std::expected<ExecCredential, NetError> run(const Cancel& cancel);

  const ExecPlugin plugin_;
  Programs& programs_;
  const Surroundings surroundings_;
  std::mutex mutex_;
  std::optional<Issued> issued_;
  int64_t runs_ = 0;
};

}  // namespace dsj::kube
