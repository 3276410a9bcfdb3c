#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "engine/observe/monitor.h"

namespace dsj::observe {
namespace {

std::string host_name() {
  char name[256] = "localhost";
  if (gethostname(name, sizeof name - 1) != 0) return "localhost";
  return name;
}

class Tensorboard final : public Monitor {
 public:
  Tensorboard(std::unique_ptr<WriteFile> file, WallClock clock)
      : file_(std::move(file)), clock_(std::move(clock)) {}

  Status write(std::span<const Scalar> scalars) override {
    std::string frames;
    const double now = clock_();
    for (size_t first = 0, end; first < scalars.size(); first = end) {  // one event per x
      for (end = first; end < scalars.size() && scalars[end].x == scalars[first].x;) ++end;
      frames +=
          tf_record(scalars_event(now, scalars[first].x, scalars.subspan(first, end - first)));
    }
    return file_->append(as_bytes(frames));
  }

 private:
  std::unique_ptr<WriteFile> file_;
  WallClock clock_;
};

}  // namespace

double wall_clock() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

Result<std::unique_ptr<Monitor>> open_tensorboard(Files& files,
                                                  const dsconfig::MonitorConfig& config,
                                                  int64_t from, WallClock clock) {
  const std::string directory =
      config.output_path.empty() ? config.job_name : path_join(config.output_path, config.job_name);
  DSJ_TRY_STATUS(files.make_dirs(directory));
  const double now = clock();
  const std::string name = "events.out.tfevents." + std::to_string(static_cast<int64_t>(now)) +
                           "." + host_name() + "." + std::to_string(getpid()) + ".0";
  DSJ_TRY(auto file, files.create_write(path_join(directory, name)));
  std::string begin = tf_record(version_event(now));
  if (from > 0) begin += tf_record(restart_event(now, from));
  DSJ_TRY_STATUS(file->append(as_bytes(begin)));
  return std::make_unique<Tensorboard>(std::move(file), std::move(clock));
}

}  // namespace dsj::observe
