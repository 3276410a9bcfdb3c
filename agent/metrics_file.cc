#include "agent/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/metrics.h"

namespace dsj::agent {
namespace {

constexpr const char* kOrder[] = {"step",
                                  "loss",
                                  "lr",
                                  "grad_norm",
                                  "loss_scale",
                                  "skipped",
                                  "tokens",
                                  "tokens_per_second",
                                  "step_seconds",
                                  "wire_bytes",
                                  "host_rss_bytes"};

struct Line {
  int64_t step = -1;  ///< -1: none
  bool evaluation = false;
};

Line read_line(const std::string& text) {
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return {};
  const auto step = object.find("step");
  if (step == object.end() || !step->is_number_integer()) return {};
  return {step->get<int64_t>(), object.contains("eval_loss")};
}

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::string& path) {
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

Status MetricsFile::append(const nlohmann::json& step_event, int64_t step) {
  if (step <= last_step_) DSJ_TRY_STATUS(drop_after(step - 1));
  nlohmann::ordered_json ordered;
  for (const char* name : kOrder) {
    const auto found = step_event.find(name);
    ordered[name] = found == step_event.end() ? nlohmann::json(nullptr) : *found;
  }
  for (const auto& [name, value] : step_event.items()) {
    if (name != "event" && !ordered.contains(name)) ordered[name] = value;
  }
  DSJ_TRY_STATUS(
      write_line(ordered.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"));
  last_step_ = step;
  return {};
}

Status MetricsFile::append_evaluation(const nlohmann::json& eval_event, int64_t step) {
  if (step != last_step_) return {};
  nlohmann::ordered_json ordered;
  ordered["step"] = step;
  ordered["eval_loss"] = eval_event.value("eval_loss", nlohmann::json(nullptr));
  for (const auto& [name, value] : eval_event.items()) {
    if (name != "event" && !ordered.contains(name)) ordered[name] = value;
  }
  return write_line(ordered.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
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
