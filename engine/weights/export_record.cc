#include "engine/weights/export_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

namespace dsj::weights {
namespace {

using nlohmann::json;

constexpr char kFormat[] = "dsj-export";
constexpr int64_t kEndBytes = 64 << 10;
constexpr int64_t kRecordBytesMax = 16 << 20;

/// NFS keeps a removed file under such a name while it is open somewhere.
bool is_nfs_remnant(const std::string& name) {
  return name.starts_with(".nfs");
}

json to_json(const FileMarks& marks) {
  json files = json::object();
  for (const auto& [name, mark] : marks) files[name] = {{"bytes", mark.bytes}, {"ends", mark.ends}};
  return files;
}

/// The recorded exports; none if the record cannot be read.
std::vector<FileMarks> recorded(Files& files, const std::string& target) {
  const auto text = files.read_all(export_record_path(target), kRecordBytesMax);
  if (!text) return {};
  std::vector<FileMarks> exports;
  try {
    const json record = json::parse(*text);
    if (record.at("format") != kFormat) return {};
    for (const json& one : record.at("exports")) {
      FileMarks& marks = exports.emplace_back();
      for (const auto& [name, mark] : one.items())
        marks[name] = {mark.at("bytes").get<int64_t>(), mark.at("ends").get<uint64_t>()};
    }
  } catch (const json::exception&) {
    return {};
  }
  return exports;
}

/// The kind of the entry itself; a link counts as a file.
Result<EntryKind> entry_kind(Files& files, const std::string& path) {
  const std::string parent = path_parent(path);
  DSJ_TRY(const bool there, files.exists(parent));
  if (!there) return EntryKind::Absent;
  DSJ_TRY(const auto entries, files.list_dir(parent));
  for (const DirEntry& entry : entries)
    if (path_join(parent, entry.name) == path) return entry.kind;
  return EntryKind::Absent;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// Why the directory is not this export; nullopt if it is.
std::optional<std::string> difference(const FileMarks& found, const FileMarks& wrote) {
  for (const auto& [name, mark] : found) {
    const auto known = wrote.find(name);
    if (known == wrote.end()) return name + " was not written by an export";
    if (known->second != mark) return name + " was changed since it was exported";
  }
  return std::nullopt;
}

}  // namespace

std::string hidden_beside(std::string_view target, const char* suffix) {
  while (target.size() > 1 && target.back() == '/') target.remove_suffix(1);
  const size_t slash = target.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? target : target.substr(slash + 1);
  return path_join(path_parent(target), "." + std::string(name) + suffix);
}

std::string export_record_path(const std::string& target) {
  return hidden_beside(target, ".export.json");
}

Result<FileMark> mark_of(Files& files, const std::string& path) {
  DSJ_TRY(const auto file, files.open_read(path));
  const int64_t bytes = file->size(), end = std::min(bytes, kEndBytes);
  std::vector<std::byte> ends(static_cast<size_t>(2 * end));
  DSJ_TRY_STATUS(file->read(0, std::span(ends).first(static_cast<size_t>(end))));
  DSJ_TRY_STATUS(file->read(bytes - end, std::span(ends).last(static_cast<size_t>(end))));
  return FileMark{bytes, XXH3_64bits(ends.data(), ends.size())};
}

namespace {

struct Seen {
  Occupant occupant;
  std::vector<FileMarks> own;  ///< OwnModel: the matching recorded exports
};

Result<Seen> look_at(Files& files, const std::string& target) {
  using Kind = Occupant::Kind;
  const auto foreign = [](std::string what) { return Seen{{Kind::Foreign, std::move(what)}, {}}; };
  const std::string path = without_slash(target);
  DSJ_TRY(const EntryKind kind, entry_kind(files, path));
  if (kind == EntryKind::Absent) return Seen{};
  if (kind != EntryKind::Directory) return foreign("it is a link or a file");
  DSJ_TRY(const auto entries, files.list_dir(path));
  if (entries.empty()) return Seen{};
  FileMarks found;
  for (const DirEntry& entry : entries) {
    if (entry.kind == EntryKind::Directory)
      return foreign("the directory " + entry.name + " was not written by an export");
    if (is_nfs_remnant(entry.name)) continue;
    DSJ_TRY(const EntryKind leads_to, files.kind(path_join(path, entry.name)));
    if (leads_to != EntryKind::File)
      return foreign("the link " + entry.name + " was not written by an export");
    DSJ_TRY(found[entry.name], mark_of(files, path_join(path, entry.name)));
  }
  Seen seen{{Kind::OwnModel, ""}, {}};
  std::string why = "no export to this place is known";
  for (FileMarks& wrote : recorded(files, path)) {
    const auto differs = difference(found, wrote);
    if (differs)
      why = *differs;
    else
      seen.own.push_back(std::move(wrote));
  }
  return seen.own.empty() ? foreign(why) : seen;
}

}  // namespace

Result<Occupant> occupant_of(Files& files, const std::string& target) {
  DSJ_TRY(Seen seen, look_at(files, target));
  return std::move(seen.occupant);
}

Status record_export(Files& files, const std::string& staging, const std::string& target) {
  FileMarks made;
  DSJ_TRY(const auto entries, files.list_dir(staging));
  for (const DirEntry& entry : entries) {
    DSJ_TRY(made[entry.name], mark_of(files, path_join(staging, entry.name)));
  }
  json exports = json::array({to_json(made)});
  const auto before = look_at(files, target);
  if (before)
    for (const FileMarks& own : before->own)
      if (own != made) exports.push_back(to_json(own));
  return files.write_atomically(export_record_path(target),
                                json{{"format", kFormat}, {"exports", exports}}.dump(1) + "\n");
}

}  // namespace dsj::weights
