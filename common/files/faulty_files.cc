#include "common/files/faulty_files.h"

namespace dsj {

class FaultyWriteFile final : public WriteFile {
 public:
  FaultyWriteFile(FaultyFiles& owner, std::unique_ptr<WriteFile> inner, std::string path)
      : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    DSJ_TRY_STATUS(owner_.write_side("append " + path_, [&] {
      if (owner_.fault_.torn) (void)inner_->append(bytes.first(bytes.size() / 2));
    }));
    return inner_->append(bytes);
  }
  Status rewrite(int64_t offset, std::span<const std::byte> bytes) override {
    DSJ_TRY_STATUS(owner_.write_side("rewrite " + path_));
    return inner_->rewrite(offset, bytes);
  }
  Status sync() override {
    DSJ_TRY_STATUS(owner_.write_side("sync " + path_));
    return inner_->sync();
  }
  Status close() override {
    DSJ_TRY_STATUS(owner_.write_side("close " + path_));
    return inner_->close();
  }

 private:
  FaultyFiles& owner_;
  std::unique_ptr<WriteFile> inner_;
  std::string path_;
};

class FaultyReadFile final : public ReadFile {
 public:
  FaultyReadFile(const FaultyFiles& owner, std::unique_ptr<ReadFile> inner, std::string path)
      : owner_(owner), inner_(std::move(inner)), path_(std::move(path)) {}

  Status read(int64_t offset, std::span<std::byte> out) const override {
    DSJ_TRY_STATUS(owner_.read_side("read " + path_));
    return inner_->read(offset, out);
  }
  int64_t size() const override { return inner_->size(); }

 private:
  const FaultyFiles& owner_;
  std::unique_ptr<ReadFile> inner_;
  std::string path_;
};

std::vector<std::string> FaultyFiles::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

Status FaultyFiles::alive() const {
  const std::lock_guard lock(mutex_);
  if (dead_) return fail(ErrorKind::Internal, "the process is dead (injected)");
  return {};
}

Status FaultyFiles::write_side(const std::string& what, const std::function<void()>& before_death) {
  DSJ_TRY_STATUS(alive());
  {
    const std::lock_guard lock(mutex_);
    operations_.push_back(what);
    if (int64_t(operations_.size()) - 1 != fault_.at) return {};
    dead_ = fault_.dies;
  }
  if (before_death) before_death();
  if (fault_.die) fault_.die();
  Error error = fault_.error;
  error.where = what;
  return std::unexpected(error);
}

Status FaultyFiles::read_side(const std::string& what) const {
  DSJ_TRY_STATUS(alive());
  if (!fault_.reading) return {};
  if (auto error = fault_.reading(what)) return std::unexpected(std::move(*error));
  return {};
}

Result<std::unique_ptr<ReadFile>> FaultyFiles::open_read(const std::string& path) {
  DSJ_TRY_STATUS(read_side("open " + path));
  DSJ_TRY(auto file, inner_.open_read(path));
  return std::make_unique<FaultyReadFile>(*this, std::move(file), path);
}
Result<std::unique_ptr<WriteFile>> FaultyFiles::create_write(const std::string& path) {
  DSJ_TRY_STATUS(write_side("create " + path));
  DSJ_TRY(auto file, inner_.create_write(path));
  return std::make_unique<FaultyWriteFile>(*this, std::move(file), path);
}
Status FaultyFiles::rename(const std::string& from, const std::string& to) {
  DSJ_TRY_STATUS(write_side("rename " + from + " to " + to));
  return inner_.rename(from, to);
}
Result<bool> FaultyFiles::exchange(const std::string& a, const std::string& b) {
  if (!fault_.can_exchange) return false;
  DSJ_TRY_STATUS(write_side("exchange " + a + " with " + b));
  return inner_.exchange(a, b);
}
Status FaultyFiles::remove(const std::string& path) {
  DSJ_TRY_STATUS(write_side("remove " + path));
  return inner_.remove(path);
}
Status FaultyFiles::make_dir(const std::string& path) {
  DSJ_TRY_STATUS(write_side("make_dir " + path));
  return inner_.make_dir(path);
}
Result<std::vector<DirEntry>> FaultyFiles::list_dir(const std::string& path) {
  DSJ_TRY_STATUS(read_side("list " + path));
  return inner_.list_dir(path);
}
Result<EntryKind> FaultyFiles::kind(const std::string& path) {
  DSJ_TRY_STATUS(alive());
  return inner_.kind(path);
}
Status FaultyFiles::sync_dir(const std::string& path) {
  DSJ_TRY_STATUS(write_side("sync_dir " + path));
  return inner_.sync_dir(path);
}

}  // namespace dsj
