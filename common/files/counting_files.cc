#include "common/files/counting_files.h"

namespace dsj {
namespace {

using TablePtr = std::shared_ptr<CountingFiles::Table>;

class CountingReadFile final : public ReadFile {
 public:
  CountingReadFile(std::unique_ptr<ReadFile> inner, TablePtr table, std::string path)
      : inner_(std::move(inner)), table_(std::move(table)), path_(std::move(path)) {}
  Status read(int64_t offset, std::span<std::byte> out) const override {
    {
      const std::lock_guard lock(table_->mutex);
      FileCounts& counts = table_->counts[path_];
      ++counts.reads;
      counts.bytes_read += int64_t(out.size());
    }
    return inner_->read(offset, out);
  }
  int64_t size() const override { return inner_->size(); }

 private:
  std::unique_ptr<ReadFile> inner_;
  TablePtr table_;
  std::string path_;
};

class CountingWriteFile final : public WriteFile {
 public:
  CountingWriteFile(std::unique_ptr<WriteFile> inner, TablePtr table, std::string path)
      : inner_(std::move(inner)), table_(std::move(table)), path_(std::move(path)) {}
  Status append(std::span<const std::byte> bytes) override {
    {
      const std::lock_guard lock(table_->mutex);
      FileCounts& counts = table_->counts[path_];
      ++counts.writes;
      counts.bytes_written += int64_t(bytes.size());
    }
    return inner_->append(bytes);
  }
  Status rewrite(int64_t offset, std::span<const std::byte> bytes) override {
    {
      const std::lock_guard lock(table_->mutex);
      FileCounts& counts = table_->counts[path_];
      ++counts.writes;
      counts.bytes_written += int64_t(bytes.size());
    }
    return inner_->rewrite(offset, bytes);
  }
  Status sync() override { return inner_->sync(); }
  Status close() override { return inner_->close(); }

 private:
  std::unique_ptr<WriteFile> inner_;
  TablePtr table_;
  std::string path_;
};

}  // namespace

CountingFiles::CountingFiles(Files& inner) : inner_(inner), table_(std::make_shared<Table>()) {}

FileCounts CountingFiles::of(const std::string& path) const {
  const std::lock_guard lock(table_->mutex);
  const auto found = table_->counts.find(path);
  return found == table_->counts.end() ? FileCounts{} : found->second;
}

FileCounts CountingFiles::total() const {
  const std::lock_guard lock(table_->mutex);
  FileCounts sum;
  for (const auto& [path, counts] : table_->counts) {
    sum.bytes_read += counts.bytes_read;
    sum.bytes_written += counts.bytes_written;
    sum.reads += counts.reads;
    sum.writes += counts.writes;
    sum.opens += counts.opens;
    sum.lists += counts.lists;
  }
  return sum;
}

void CountingFiles::reset() {
  const std::lock_guard lock(table_->mutex);
  table_->counts.clear();
}

Result<std::unique_ptr<ReadFile>> CountingFiles::open_read(const std::string& path) {
  DSJ_TRY(auto file, inner_.open_read(path));
  const std::lock_guard lock(table_->mutex);
  ++table_->counts[path].opens;
  return std::make_unique<CountingReadFile>(std::move(file), table_, path);
}

Result<std::unique_ptr<WriteFile>> CountingFiles::create_write(const std::string& path) {
  DSJ_TRY(auto file, inner_.create_write(path));
  const std::lock_guard lock(table_->mutex);
  ++table_->counts[path].opens;
  return std::make_unique<CountingWriteFile>(std::move(file), table_, path);
}

Status CountingFiles::rename(const std::string& from, const std::string& to) {
  return inner_.rename(from, to);
}
Result<bool> CountingFiles::exchange(const std::string& a, const std::string& b) {
  return inner_.exchange(a, b);
}
Status CountingFiles::remove(const std::string& path) {
  return inner_.remove(path);
}
Status CountingFiles::make_dir(const std::string& path) {
  return inner_.make_dir(path);
}
Result<std::vector<DirEntry>> CountingFiles::list_dir(const std::string& path) {
  {
    const std::lock_guard lock(table_->mutex);
    ++table_->counts[path].lists;
  }
  return inner_.list_dir(path);
}
Result<EntryKind> CountingFiles::kind(const std::string& path) {
  return inner_.kind(path);
}
Status CountingFiles::sync_dir(const std::string& path) {
  return inner_.sync_dir(path);
}

}  // namespace dsj
