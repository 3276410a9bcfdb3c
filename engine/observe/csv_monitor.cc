#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "common/text.h"
#include "engine/observe/monitor.h"

namespace dsj::observe {
namespace {

/// The part after the last '/'.
std::string head_of(const std::string& tag) {
  return tag.substr(tag.rfind('/') + 1);
}

std::string file_of(std::string tag) {
  for (char& c : tag) {
    if (c == '/' || c == ' ') c = '_';
  }
  return tag + ".csv";
}

/// The shortest text that is read back as the same double. Infinity and NaN are written as Python's
/// csv does.
std::string shown(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto [end, problem] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return problem == std::errc{} ? std::string(buffer, end) : text::number(value);
}

/// What a run that starts at `from` keeps of a file: the header, and whole rows before `from`.
std::string kept(const std::string& content, const std::string& head, int64_t from) {
  std::string result = head;
  size_t begin = content.find('\n');
  while (begin != std::string::npos) {
    ++begin;
    const size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;
    int64_t x = 0;
    const auto read = std::from_chars(content.data() + begin, content.data() + end, x);
    if (read.ec == std::errc{} && x < from) result += content.substr(begin, end + 1 - begin);
    begin = end;
  }
  return result;
}

class CsvMonitor final : public Monitor {
 public:
  CsvMonitor(Files& files, std::string directory, int64_t from)
      : files_(files), directory_(std::move(directory)), from_(from) {}

  Status write(std::span<const Scalar> scalars) override {
    for (const Scalar& scalar : scalars) {
      auto& file = open_[scalar.tag];
      if (!file) {
        DSJ_TRY(file, open(scalar.tag));
      }
      const std::string row = std::to_string(scalar.x) + "," + shown(scalar.value) + "\r\n";
      DSJ_TRY_STATUS(file->append(as_bytes(row)));
    }
    return {};
  }

 private:
  /// Writes a new file and renames it over the old one, so that readers never see less.
  Result<std::unique_ptr<WriteFile>> open(const std::string& tag) {
    const std::string path = path_join(directory_, file_of(tag));
    const std::string head = "step," + head_of(tag) + "\r\n";
    std::string content = head;
    DSJ_TRY(const bool there, files_.exists(path));
    if (there) {
      DSJ_TRY(const std::string old, files_.read_all(path));
      content = kept(old, head, from_);
    }
    DSJ_TRY(auto file, files_.create_write(path + ".tmp"));
    DSJ_TRY_STATUS(file->append(as_bytes(content)));
    DSJ_TRY_STATUS(files_.rename(path + ".tmp", path));
    return file;
  }

  Files& files_;
  const std::string directory_;
  const int64_t from_;
  std::map<std::string, std::unique_ptr<WriteFile>> open_;
};

}  // namespace

Result<std::unique_ptr<Monitor>> open_csv(Files& files, const dsconfig::MonitorConfig& config,
                                          int64_t from) {
  const std::string directory =
      config.output_path.empty() ? config.job_name : path_join(config.output_path, config.job_name);
  DSJ_TRY_STATUS(files.make_dirs(directory));
  return std::make_unique<CsvMonitor>(files, directory, from);
}

}  // namespace dsj::observe
