// The real disk behind the file port. Repeats short reads, short writes and calls after EINTR.
#pragma once

#include "common/files/files.h"

namespace dsj {

class PosixFiles final : public Files {
 public:
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override;
  Result<std::unique_ptr<WriteFile>> create_write(const std::string& path) override;
  Status rename(const std::string& from, const std::string& to) override;
  Result<bool> exchange(const std::string& a, const std::string& b) override;
  Status remove(const std::string& path) override;
  Status make_dir(const std::string& path) override;
  Result<std::vector<DirEntry>> list_dir(const std::string& path) override;
  Result<EntryKind> kind(const std::string& path) override;
  Status sync_dir(const std::string& path) override;
};

}  // namespace dsj
