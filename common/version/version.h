// Which build a program is: release, commit and libtorch, for `--version` of every program. The commit
// lies in one generated source (cmake/DsjVersion.cmake), so a commit recompiles that file alone.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace dsj {

struct Version {
  std::string release;  ///< "0.1.0": project(... VERSION)
  std::string commit;   ///< 40 digits; empty: built outside a git checkout
  std::string
      describe;  ///< `git describe`: v0.1.0-12-g4ba5a5c1dac2, -dirty with changes; without git "v" and the release
  std::string libtorch;  ///< "2.11.0"; empty: built without libtorch (DSJ_ENGINE=OFF)
};

/// This build's.
const Version& version();

/// "dsj 0.1.0 (v0.1.0-12-g4ba5a5c1dac2, libtorch 2.11.0)"
std::string version_text(const std::string& program, const Version& version);

/// One JSON object with the fields of Version and "program"; what is not known is null.
std::string version_json(const std::string& program, const Version& version);

/// Answers `--version [-o text|json]` on stdout. nullopt: `args`, which follow the program's name, ask
/// for something else. A value: the program ends with this code, 0, or 2 for another word than those.
std::optional<int> answer_version(const std::string& program, std::span<const std::string> args);

}  // namespace dsj
