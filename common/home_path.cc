#include "common/home_path.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace dsj {
namespace {

/// The home directory of `user`, of this process's user for "". Empty if unknown.
std::string home_of(const std::string& user) {
  if (user.empty()) {
    if (const char* home = std::getenv("HOME"); home && *home) return home;
  }
  const passwd* entry = user.empty() ? getpwuid(geteuid()) : getpwnam(user.c_str());
  return entry && entry->pw_dir ? entry->pw_dir : "";
}

}  // namespace

std::optional<HomePath> home_path(std::string_view path) {
  if (!path.starts_with("~")) return std::nullopt;
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string user(path.substr(1, slash - 1)), rest(path.substr(slash));
  // "~" without "/" begins names of existing files: "~draft.json".
  if (slash == path.size() && !user.empty()) return std::nullopt;
  const std::string home = home_of(user);
  return HomePath{"\"" + std::string(path) + "\": ~ is not expanded here",
                  home.empty() ? "write the path of the home directory" : "write " + home + rest};
}

}  // namespace dsj
