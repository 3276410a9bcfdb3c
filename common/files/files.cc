#include "common/files/files.h"

namespace dsj {

std::string path_join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && path.back() != '/') path += '/';
  return path.append(name);
}

std::string path_parent(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

Result<bool> Files::exists(const std::string& path) {
  DSJ_TRY(const EntryKind found, kind(path));
  return found != EntryKind::Absent;
}

Status Files::make_dirs(const std::string& path) {
  DSJ_TRY(const EntryKind found, kind(path));
  if (found == EntryKind::Directory) return {};
  const std::string parent = path_parent(path);
  if (parent != "." && parent != path) DSJ_TRY_STATUS(make_dirs(parent));
  return make_dir(path);
}

namespace {
Status remove_tree(Files& files, const std::string& path) {
  DSJ_TRY(const auto entries, files.list_dir(path));
  for (const DirEntry& entry : entries) {
    const std::string child = path_join(path, entry.name);
    if (entry.kind == EntryKind::Directory) {
      DSJ_TRY_STATUS(remove_tree(files, child));
    } else {
      DSJ_TRY_STATUS(files.remove(child));
    }
  }
  return files.remove(path);
}
}  // namespace

Status Files::remove_all(const std::string& path) {
  DSJ_TRY(const EntryKind found, kind(path));
  if (found == EntryKind::Absent) return {};
  // kind() follows links, a listing does not. Removing a link must not empty its target.
  DSJ_TRY(const auto siblings, list_dir(path_parent(path)));
  for (const DirEntry& entry : siblings) {
    if (entry.kind == EntryKind::Directory && path_join(path_parent(path), entry.name) == path) {
      return remove_tree(*this, path);
    }
  }
  return remove(path);
}

Result<std::string> Files::read_all(const std::string& path, int64_t bytes_max) {
  DSJ_TRY(const auto file, open_read(path));
  if (file->size() > bytes_max) {
    return bad_input("the file has " + std::to_string(file->size()) + " bytes, at most " +
                         std::to_string(bytes_max) + " are expected here",
                     path);
  }
  std::string content(static_cast<size_t>(file->size()), '\0');
  DSJ_TRY_STATUS(file->read(0, std::as_writable_bytes(std::span(content))));
  return content;
}

Status Files::write_synced(const std::string& path, std::string_view content) {
  DSJ_TRY(const auto file, create_write(path));
  DSJ_TRY_STATUS(file->append(as_bytes(content)));
  DSJ_TRY_STATUS(file->sync());
  return file->close();
}

Status Files::write_atomically(const std::string& path, std::string_view content) {
  const std::string temporary = path + ".tmp";
  DSJ_TRY_STATUS(write_synced(temporary, content));
  DSJ_TRY_STATUS(rename(temporary, path));
  return sync_dir(path_parent(path));
}

}  // namespace dsj
