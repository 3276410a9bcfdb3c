#include "agent/install.h"

#include <link.h>

#include <filesystem>
#include <vector>

#include "job/contract.h"

namespace dsj::agent {
namespace {

namespace fs = std::filesystem;
using namespace dsj::contract;

/// Paths of this process's shared objects, as the loader found them. The last component of a path
/// is the name that other objects refer to. The program itself and the kernel's own object are left
/// out.
std::vector<fs::path> loaded_objects() {
  std::vector<fs::path> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* found) {
        const fs::path path = object->dlpi_name;
        if (path.is_absolute()) static_cast<std::vector<fs::path>*>(found)->push_back(path);
        return 0;
      },
      &paths);
  return paths;
}

bool is_loader(const fs::path& path) {
  return path.filename().string().starts_with("ld-") || path.filename() == kInstalledLoader;
}

Status copy_object(const fs::path& from, const fs::path& to) {
  // Written to a new file and renamed, because the old file may be running.
  const fs::path part = to.string() + ".part";
  std::error_code problem;
  fs::copy_file(from, part, fs::copy_options::overwrite_existing, problem);
  if (!problem) {
    constexpr auto kAll = fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                          fs::perms::others_read | fs::perms::others_exec;
    fs::permissions(part, kAll, problem);
  }
  if (!problem) fs::rename(part, to, problem);
  if (!problem) return {};
  return fail(ErrorKind::Environment, "cannot copy " + from.string() + ": " + problem.message(),
              to.string());
}

}  // namespace

Result<int> install(const std::string& directory) {
  const fs::path to = directory;
  std::error_code problem;
  fs::create_directories(to / kInstalledLibraries, problem);
  if (problem) {
    return fail(ErrorKind::Environment, "cannot make the directory: " + problem.message(),
                (to / kInstalledLibraries).string());
  }
  int files = 1;
  bool loader = false;
  for (const fs::path& object : loaded_objects()) {
    ++files;
    loader |= is_loader(object);
    DSJ_TRY_STATUS(copy_object(object, is_loader(object)
                                           ? to / kInstalledLoader
                                           : to / kInstalledLibraries / object.filename()));
  }
  if (!loader) {
    return fail(ErrorKind::Environment, "this program has no loader of its own to copy",
                "dsj-agent --install");
  }
  DSJ_TRY_STATUS(copy_object("/proc/self/exe", to / kInstalledAgent));
  return files;
}

}  // namespace dsj::agent
