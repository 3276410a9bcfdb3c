#include "cli/import/compose.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "job/spec/yaml.h"

namespace dsj::jobimport {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxFiles = 200;
constexpr int64_t kMaxBytes = 1 << 20;
constexpr int64_t kMaxPackage = 32;  // nested names

void merge(json& base, const json& over) {
  if (!base.is_object() || !over.is_object()) {
    base = over;
    return;
  }
  for (const auto& [name, value] : over.items()) {
    if (base.contains(name))
      merge(base[name], value);
    else
      base[name] = value;
  }
}

std::string dotted(const std::string& a, const std::string& b) {
  return a.empty() || b.empty() ? a + b : a + "." + b;
}

/// "../config/zero" → "config": the names of the directories become the package.
std::string package_of_group(const std::string& name) {
  std::string package;
  for (const fs::path& part : fs::path(name).parent_path())
    if (part != ".." && part != "." && part != "/") package = dotted(package, part.string());
  return package;
}

struct Entry {
  std::string name;                    ///< the file's name, without .yaml
  std::optional<std::string> package;  ///< after @
  std::string group;                   ///< the group in "group: option"
  bool self = false, optional = false;
};

/// The package in a line "# @package NAME" above the first value.
std::optional<std::string> header_package(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (line.empty()) continue;
    if (line[0] != '#') break;
    const size_t mark = line.find("@package ");
    if (mark == std::string::npos) continue;
    line.erase(0, mark + 9);
    line.erase(0, std::min(line.find_first_not_of(' '), line.size()));
    return line;
  }
  return std::nullopt;
}

class Composer {
 public:
  Composer(Files& files, const std::vector<std::string>& search_paths,
           const PredefinedFiles& predefined)
      : files_(files), search_paths_(search_paths), predefined_(predefined) {}

  Status add(const std::string& path, const std::string& package) {
    const std::string file = fs::path(path).lexically_normal().string();
    DSJ_TRY_STATUS(enter(file));
    DSJ_TRY(const std::string text, files_.read_all(file, kMaxBytes));
    return add_text(text, file, package);
  }

  Composed take() { return std::move(result_); }

 private:
  /// Starts a file. Errors: a cycle, or too many files.
  Status enter(const std::string& file) {
    if (std::find(stack_.begin(), stack_.end(), file) != stack_.end()) {
      std::string chain;
      for (const std::string& one : stack_) chain += one + " -> ";
      return bad_input("defaults lead back to the same file: " + chain + file, stack_.front(),
                       "break the circle");
    }
    if (result_.sources.size() >= kMaxFiles)
      return bad_input("defaults name more than " + std::to_string(kMaxFiles) + " files", file);
    result_.sources.push_back(file);
    return {};
  }

  Status add_text(const std::string& text, const std::string& file, const std::string& package) {
    DSJ_TRY(dsconfig::Document document, jobspec::parse_yaml(text, file, jobspec::Dialect::Omega));
    if (!document.value.is_object())
      return bad_input("expected names and values, found another kind of YAML", file);
    json list = json::array();
    if (document.value.contains("defaults")) list = document.value["defaults"];
    document.value.erase("defaults");
    if (list.is_null()) list = json::array();
    if (!list.is_array()) return bad_input("defaults: expected a list", file);
    const std::string own = own_package(header_package(text), package);
    if (std::count(own.begin(), own.end(), '.') >= kMaxPackage)
      return bad_input("a package of more than " + std::to_string(kMaxPackage) + " names", file);
    stack_.push_back(file);
    DSJ_TRY_STATUS(entries(list, file, own, document.value));
    stack_.pop_back();
    return {};
  }

  /// `given`: the package in the defaults entry.
  static std::string own_package(const std::optional<std::string>& header,
                                 const std::string& given) {
    if (!header || *header == "_group_") return given;
    return *header == "_global_" ? "" : *header;
  }

  Status entries(const json& list, const std::string& file, const std::string& own,
                 const json& value) {
    bool self_done = false;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = file + ": defaults[" + std::to_string(i) + "]";
      DSJ_TRY(const std::vector<Entry> found, read(list[i], place));
      for (const Entry& entry : found) {
        if (entry.self) {
          if (self_done) return bad_input("_self_ is given twice", place, "keep one");
          self_done = true;
          put(value, own);
          continue;
        }
        DSJ_TRY_STATUS(follow(entry, file, own, place));
      }
    }
    if (!self_done) put(value, own);
    return {};
  }

  Status follow(const Entry& entry, const std::string& file, const std::string& own,
                const std::string& place) {
    std::string package;
    if (!entry.package)
      package = dotted(own, entry.group.empty() ? package_of_group(entry.name)
                                                : package_of_group(entry.group + "/x"));
    else if (entry.package->starts_with("_here_"))
      package = dotted(own, entry.package->size() > 7 ? entry.package->substr(7) : "");
    else if (entry.package->starts_with("_global_"))
      package = entry.package->size() > 9 ? entry.package->substr(9) : "";
    else if (*entry.package == "_group_")
      package = package_of_group(entry.group.empty() ? entry.name : entry.group + "/x");
    else
      package = dotted(own, *entry.package);
    DSJ_TRY(const std::string found, locate(entry, file));
    if (!found.empty()) return add(found, package);
    if (!entry.optional) return substitute(entry, file, package, place);
    result_.notes.push_back(place + ": " + entry.name + " is optional and not there");
    return {};
  }

  Status substitute(const Entry& entry, const std::string& file, const std::string& package,
                    const std::string& place) {
    const std::string missing = candidates(entry, file).front();
    const auto found = predefined_.find(fs::path(missing).stem().string());
    if (found == predefined_.end()) {
      std::string names;
      for (const auto& [name, text] : predefined_) names += (names.empty() ? "" : ", ") + name;
      return bad_input("there is no file \"" + missing + "\"", place,
                       "name its directory: --search-path DIR" +
                           (names.empty() ? "" : "; predefined are " + names));
    }
    const std::string path = predefined_path(found->first);
    DSJ_TRY_STATUS(enter(path));
    result_.substitutes.push_back({found->first, missing, place});
    return add_text(found->second, path, package);
  }

  /// The possible paths of an entry in `file`, the likeliest first.
  std::vector<std::string> candidates(const Entry& entry, const std::string& file) const {
    std::string name = entry.name;
    if (!name.ends_with(".yaml") && !name.ends_with(".yml")) name += ".yaml";
    std::vector<std::string> places = {fs::path(file).parent_path().string(),
                                       fs::path(stack_.front()).parent_path().string()};
    if (name.starts_with("/")) places.erase(places.begin());  // from the root of the search path
    name.erase(0, std::min(name.find_first_not_of('/'), name.size()));
    places.insert(places.end(), search_paths_.begin(), search_paths_.end());
    for (std::string& place : places) place = (fs::path(place) / name).lexically_normal().string();
    return places;
  }

  Result<std::string> locate(const Entry& entry, const std::string& file) {
    for (const std::string& path : candidates(entry, file)) {
      DSJ_TRY(const EntryKind kind, files_.kind(path));
      if (kind == EntryKind::File) return path;
    }
    return std::string();
  }

  /// Reads an element of the list: a null option gives no entry, a list of options several.
  Result<std::vector<Entry>> read(const json& element, const std::string& place) {
    if (element.is_string()) {
      const std::string text = element.get<std::string>();
      if (text == "_self_") return std::vector<Entry>{{.self = true}};
      const size_t at = text.find('@');
      Entry entry{.name = text.substr(0, at)};
      if (at != std::string::npos) entry.package = text.substr(at + 1);
      if (entry.name.empty()) return bad_input("an entry without a name", place);
      return std::vector<Entry>{entry};
    }
    if (!element.is_object() || element.size() != 1)
      return bad_input("expected NAME, NAME@PACKAGE or GROUP: OPTION", place);
    std::string group = element.begin().key();
    Entry entry;
    for (const char* word : {"optional ", "override "}) {
      if (!group.starts_with(word)) continue;
      entry.optional = word[1] == 'p';
      group.erase(0, 9);
    }
    const size_t at = group.find('@');
    if (at != std::string::npos) entry.package = group.substr(at + 1);
    entry.group = group.substr(0, at);
    const json& option = element.begin().value();
    std::vector<Entry> list;
    for (const json& one : option.is_array() ? option : json::array({option})) {
      if (one.is_null()) continue;
      if (!one.is_string()) return bad_input("expected the name of an option", place);
      const std::string name = one.get<std::string>();
      if (name.find("${") != std::string::npos || entry.group.starts_with("hydra/")) {
        result_.notes.push_back(place + ": " + entry.group + ": " + name + " is not followed");
        continue;
      }
      list.push_back(entry);
      list.back().name = entry.group + "/" + name;
    }
    return list;
  }

  void put(json value, const std::string& package) {
    std::vector<std::string> names;
    for (size_t at = 0; at <= package.size() && !package.empty();) {
      const size_t dot = std::min(package.find('.', at), package.size());
      names.push_back(package.substr(at, dot - at));
      at = dot + 1;
    }
    for (auto name = names.rbegin(); name != names.rend(); ++name)
      value = json{{*name, std::move(value)}};
    if (result_.value.is_null()) result_.value = json::object();
    merge(result_.value, value);
  }

  Files& files_;
  const std::vector<std::string>& search_paths_;
  const PredefinedFiles& predefined_;
  std::vector<std::string> stack_;
  Composed result_;
};

}  // namespace

Result<Composed> compose(Files& files, const std::string& path,
                         const std::vector<std::string>& search_paths,
                         const PredefinedFiles& predefined) {
  Composer composer(files, search_paths, predefined);
  DSJ_TRY_STATUS(composer.add(path, ""));
  return composer.take();
}

}  // namespace dsj::jobimport
