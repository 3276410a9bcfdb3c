#include "common/cgroup.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace dsj {
namespace {

namespace fs = std::filesystem;

/// "cpu,cpuacct" names "cpu".
bool names(const std::string& list, const std::string& controller) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == controller) return true;
  }
  return false;
}

}  // namespace

void each_group(const std::string& root, const std::string& controller,
                const std::function<void(const std::string& folder, int version)>& visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string list = line.substr(first + 1, second - first - 1);
    const int version = list.empty() ? 2 : 1;
    if (version == 1 && !names(list, controller)) continue;
    // Version 1 has a mount for each controller, under which a link "cpu" may lead to "cpu,cpuacct".
    const std::string mount = root + "/sys/fs/cgroup" + (version == 2 ? "" : "/" + controller);
    fs::path group = line.substr(second + 1);
    for (;; group = group.parent_path()) {
      visit(mount + (group.has_relative_path() ? group.string() : ""), version);
      if (!group.has_relative_path()) break;
    }
  }
}

}  // namespace dsj
