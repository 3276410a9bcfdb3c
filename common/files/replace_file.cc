#include "common/files/replace_file.h"

#include <span>

namespace dsj {

Status replace_file(Files& files, const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  DSJ_TRY(const auto file, files.create_write(temporary));
  DSJ_TRY_STATUS(file->append(std::as_bytes(std::span(content))));
  DSJ_TRY_STATUS(file->close());
  return files.rename(temporary, path);
}

}  // namespace dsj
