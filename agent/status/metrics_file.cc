#include "agent/status/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "common/json.h"
#include "job/report/field_value.h"

namespace dsj::agent {
namespace {

struct Line {
  int64_t step = -1;  ///< -1 if there is none
  bool evaluation = false;
};

Line read_line(const std::string& text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return {};
  const auto step = json_whole(object, report::name_of<&report::Step::step>());
  if (!step) return {};
  return {*step, object.contains(report::name_of<&report::Eval::loss>())};
}

/// True if the first line is a step's line, or the beginning of one.
bool is_of_steps(const std::string& path) {
  std::string first(256, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(first.data(), static_cast<std::streamsize>(first.size()));
  first.resize(static_cast<size_t>(file.gcount()));
  return first.empty() || first.starts_with("{\"step\":");
}

/// Renames a foreign file of this name, in a directory that a run now uses, so that it is not
/// truncated.
Status keep_foreign(const std::string& path) {
  if (is_of_steps(path)) return {};
  std::string kept = path + ".kept";
  for (int i = 2; std::filesystem::exists(kept); ++i) kept = path + ".kept-" + std::to_string(i);
  if (::rename(path.c_str(), kept.c_str()) == 0) return {};
  return fail(
      ErrorKind::Environment,
      "it is not a file of a run, and cannot be moved aside: " + std::string(std::strerror(errno)),
      path);
}

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::string& path) {
  DSJ_TRY_STATUS(keep_foreign(path));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return fail(ErrorKind::Environment, std::string("cannot open it: ") + std::strerror(errno),
                path);
  }
  MetricsFile file(path, fd);
  DSJ_TRY_STATUS(file.drop_after(INT64_MAX));
  return file;
}

MetricsFile::MetricsFile(MetricsFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      last_step_(other.last_step_) {}

MetricsFile::~MetricsFile() {
  if (fd_ >= 0) close(fd_);
}

Status MetricsFile::drop_after(int64_t step) {
  std::string line;
  char buffer[64 * 1024];
  int64_t offset = 0, keep = 0;
  last_step_ = 0;
  bool ended = false;
  while (!ended) {
    const ssize_t got = pread(fd_, buffer, sizeof buffer, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t i = 0; i < got && !ended; ++i) {
      if (buffer[i] != '\n') {
        line += buffer[i];
        continue;
      }
      const Line found = read_line(line);
      const bool in_order = found.evaluation ? found.step == last_step_ : found.step > last_step_;
      ended = !in_order || found.step > step;  // nothing after a damaged line is trusted
      if (ended) break;
      last_step_ = found.step;
      keep = offset + i + 1;
      line.clear();
    }
    offset += got;
  }
  if (ftruncate(fd_, keep) != 0 || lseek(fd_, keep, SEEK_SET) < 0) {
    return fail(ErrorKind::Environment, std::string("cannot cut it: ") + std::strerror(errno),
                path_);
  }
  return {};
}

Status MetricsFile::append(const report::Step& step, const nlohmann::json& others) {
  if (step.step <= last_step_) DSJ_TRY_STATUS(drop_after(step.step - 1));
  DSJ_TRY_STATUS(write_line(report::metrics_line(step, others)));
  last_step_ = step.step;
  return {};
}

Status MetricsFile::append(const report::Eval& eval, const nlohmann::json& others) {
  if (eval.step != last_step_) return {};
  return write_line(report::metrics_line(eval, others));
}

Status MetricsFile::write_line(const std::string& line) {
  for (size_t done = 0; done < line.size();) {
    const ssize_t wrote = write(fd_, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) {
      return fail(ErrorKind::Environment,
                  std::string("cannot write a line: ") + std::strerror(errno), path_);
    }
    done += static_cast<size_t>(wrote);
  }
  return {};
}

Status MetricsFile::sync() {
  if (fdatasync(fd_) == 0) return {};
  return fail(ErrorKind::Environment, std::string("cannot sync it: ") + std::strerror(errno),
              path_);
}

}  // namespace dsj::agent
