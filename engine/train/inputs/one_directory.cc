#include "engine/train/inputs/one_directory.h"

#include <unistd.h>

#include <random>

#include "common/format.h"
#include "engine/comm/agree.h"

namespace dsj::train {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "its host";
}

std::string fresh_name() {
  std::random_device random;
  return text::format(".one-directory-%08x%08x", random(), random());
}

/// A network volume that does not answer is not another directory: returns its own error.
std::optional<Error> not_seen(Files& files, const std::string& output_dir, const std::string& name,
                              int rank) {
  const auto there = files.exists(path_join(output_dir, name));
  if (!there) return there.error();
  if (*there) return std::nullopt;
  return Error{ErrorKind::BadInput,
               "rank " + std::to_string(rank) + " on " + host_name() +
                   " has another directory than rank 0 at " + output_dir,
               "training.outputDir",
               "name a directory that all nodes share, as on NFS or a ReadWriteMany claim"};
}

}  // namespace

Status check_one_directory(Files& files, const std::string& output_dir,
                           comm::Collectives& collectives, at::Device device) {
  DSJ_TRY(const std::string name,
          comm::said_by_first(collectives, device, [&] -> Result<std::string> {
            std::string fresh = fresh_name();
            DSJ_TRY_STATUS(files.write_synced(path_join(output_dir, fresh), ""));
            return fresh;
          }));
  const auto missing =
      comm::first_error(collectives, device, not_seen(files, output_dir, name, collectives.rank()));
  if (collectives.rank() == 0) (void)files.remove(path_join(output_dir, name));
  if (missing) return std::unexpected(*missing);
  return {};
}

}  // namespace dsj::train
