#include "cli/import/interpolation.h"

#include <algorithm>

#include "common/text.h"
#include "job/dsconfig/read/reader.h"

namespace dsj::jobimport {
namespace {

using nlohmann::json;

constexpr size_t kMaxNodes = 100'000;
constexpr size_t kMaxValue = 1 << 20;

/// "a.b[0].c" → "a", "b", "0", "c".
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::string part;
  for (char c : path) {
    if (c == '.' || c == '[' || c == ']') {
      if (!part.empty()) parts.push_back(std::move(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!part.empty()) parts.push_back(std::move(part));
  return parts;
}

std::string child_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

/// The value as text, inside a longer string.
std::string word_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_number_float()) return text::number(value.get<double>());
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The offset after the "}" of the "${" whose content begins at `at`; npos if it is not closed.
size_t end_of(const std::string& text, size_t at) {
  for (int open = 1; at < text.size(); ++at) {
    if (text.compare(at, 2, "${") == 0) {
      ++open;
      ++at;
    } else if (text[at] == '}' && --open == 0) {
      return at + 1;
    }
  }
  return std::string::npos;
}

}  // namespace

const json* Interpolator::find(const std::string& path) const {
  const json* at = &root_;
  for (const std::string& part : parts_of(path)) {
    if (at->is_object()) {
      const auto found = at->find(part);
      if (found == at->end()) return nullptr;
      at = &*found;
    } else if (at->is_array()) {
      const auto index = text::parse_int(part);
      if (!index || *index < 0 || *index >= static_cast<int64_t>(at->size())) return nullptr;
      at = &(*at)[static_cast<size_t>(*index)];
    } else {
      return nullptr;
    }
  }
  return at;
}

Result<json> Interpolator::at(const std::string& path) {
  return node(path, 0);
}

Result<json> Interpolator::node(const std::string& path, int depth) {
  const std::string place = source_ + ": " + path;
  if (depth > dsconfig::kMaxDepth) return bad_input("references are nested too deep", place);
  if (std::find(visiting_.begin(), visiting_.end(), path) != visiting_.end()) {
    std::string chain;
    for (const std::string& one : visiting_) chain += one + " -> ";
    return bad_input("refers to itself: " + chain + path, source_, "break the circle");
  }
  const json* found = find(path);
  visiting_.push_back(path);
  Result<json> value = json();
  if (found != nullptr) {
    value = resolve(*found, path, depth);
  } else {
    // A part of the path may be a reference: a: ${b}, and then a.c.
    const std::vector<std::string> parts = parts_of(path);
    std::string parent;
    for (size_t i = 0; i + 1 < parts.size(); ++i) parent = child_path(parent, parts[i]);
    const json* above = parent.empty() ? nullptr : find(parent);
    if (above == nullptr ? parts.size() > 2 : above->is_string()) {
      value = node(parent, depth + 1);
      if (value && value->is_object() && value->contains(parts.back()))
        value = json((*value)[parts.back()]);
      else if (value)
        value = json();
    }
  }
  visiting_.pop_back();
  return value;
}

Result<json> Interpolator::resolve(const json& value, const std::string& path, int depth) {
  if (++nodes_ > kMaxNodes)
    return bad_input("references grow beyond " + std::to_string(kMaxNodes) + " values",
                     source_ + ": " + path);
  if (depth > dsconfig::kMaxDepth) return bad_input("nested too deep", source_ + ": " + path);
  if (value.is_string()) return text(value.get_ref<const std::string&>(), path, depth);
  if (value.is_object()) {
    json result = json::object();
    for (const auto& [name, child] : value.items()) {
      DSJ_TRY(result[name], resolve(child, child_path(path, name), depth + 1));
    }
    return result;
  }
  if (value.is_array()) {
    json result = json::array();
    for (const json& child : value) {
      DSJ_TRY(json one, resolve(child, child_path(path, std::to_string(result.size())), depth + 1));
      result.push_back(std::move(one));
    }
    return result;
  }
  return value;
}

Result<json> Interpolator::text(const std::string& value, const std::string& path, int depth) {
  std::string out;
  for (size_t at = 0; at < value.size();) {
    if (value.compare(at, 3, "\\${") == 0) {
      out += "${";
      at += 3;
      continue;
    }
    if (value.compare(at, 2, "${") != 0) {
      out += value[at++];
      continue;
    }
    const size_t end = end_of(value, at + 2);
    if (end == std::string::npos)
      return bad_input("\"${\" is not closed", source_ + ": " + path, "add }");
    DSJ_TRY(json found, reference(value.substr(at + 2, end - at - 3), path, depth + 1));
    if (at == 0 && end == value.size()) return found;  // the whole string: any type
    out += word_of(found);
    if (out.size() > kMaxValue) return bad_input("references grow too long", source_ + ": " + path);
    at = end;
  }
  return out;
}

Result<json> Interpolator::reference(const std::string& inner, const std::string& path, int depth) {
  const std::string place = source_ + ": " + path;
  if (depth > dsconfig::kMaxDepth) return bad_input("references are nested too deep", place);
  std::string name = inner;
  const size_t colon = inner.find(':');
  if (colon != std::string::npos && inner.find("${") > colon) {
    left_open_.push_back(path + ": ${" + inner + "}");
    return json("${" + inner + "}");
  }
  if (inner.find("${") != std::string::npos) {
    DSJ_TRY(const json made, text(inner, path, depth + 1));
    name = word_of(made);
  }
  name.erase(0, std::min(name.find_first_not_of(' '), name.size()));
  while (!name.empty() && name.back() == ' ') name.pop_back();
  std::string target = name;
  if (name.starts_with(".")) {  // ".x": relative to this value; each further dot is one level up
    std::vector<std::string> parts = parts_of(path);
    size_t dots = 0;
    while (dots < name.size() && name[dots] == '.') ++dots;
    if (dots > parts.size()) return bad_input("${" + inner + "} leads above the root", place);
    parts.resize(parts.size() - dots);
    target.clear();
    for (const std::string& part : parts) target = child_path(target, part);
    target = child_path(target, name.substr(dots));
  }
  std::string plain;
  for (const std::string& part : parts_of(target)) plain = child_path(plain, part);
  if (plain.empty()) return bad_input("\"${" + inner + "}\" names nothing", place);
  DSJ_TRY(json found, node(plain, depth + 1));
  if (found.is_null() && find(plain) == nullptr)
    return bad_input("${" + inner + "} refers to nothing", place, "is it spelled so at its place?");
  followed_.insert(plain);
  return found;
}

}  // namespace dsj::jobimport
