#include "engine/data/files/csv.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/data/text/unicode.h"

namespace dsj::data {
namespace {

using nlohmann::ordered_json;

constexpr std::array kSeparators = {',', '\t', ';', '|'};
constexpr std::array<std::string_view, 10> kLists = {
    "messages",  "conversations", "history",        "tools",           "segments",
    "input_ids", "labels",        "attention_mask", "completion_mask", "assistant_masks"};
/// The columns that a file may have alone.
constexpr std::array<std::string_view, 5> kAlone = {"text", "messages", "conversations", "segments",
                                                    "input_ids"};

bool holds_list(std::string_view column, std::string_view field) {
  return field.starts_with('[') && std::ranges::find(kLists, column) != kLists.end();
}

std::string_view without_line_end(std::string_view record) {
  if (record.ends_with('\n')) record.remove_suffix(1);
  if (record.ends_with('\r')) record.remove_suffix(1);
  return record;
}

/// nullopt if a quote is not closed, or if text follows a closing quote.
std::optional<std::vector<std::string>> fields_of(std::string_view record, char separator) {
  record = without_line_end(record);
  std::vector<std::string> fields;
  for (size_t at = 0;; ++at) {
    std::string& field = fields.emplace_back();
    if (at < record.size() && record[at] == '"') {
      for (++at;; ++at) {
        if (at >= record.size()) return std::nullopt;
        if (record[at] != '"') {
          field += record[at];
        } else if (at + 1 < record.size() && record[at + 1] == '"') {
          field += record[at++];
        } else {
          break;
        }
      }
      ++at;
      if (at < record.size() && record[at] != separator) return std::nullopt;
    } else {
      const size_t end = std::min(record.find(separator, at), record.size());
      field = record.substr(at, end - at);
      at = end;
    }
    if (at >= record.size()) return fields;
  }
}

bool good_names(const std::vector<std::string>& names) {
  constexpr size_t kLongest = 256;
  if (names.size() == 1) return std::ranges::find(kAlone, names[0]) != kAlone.end();
  std::set<std::string_view> seen;
  return std::ranges::all_of(names, [&](const std::string& name) {
    return !name.empty() && name.size() <= kLongest && name.find('\n') == name.npos &&
           !find_invalid_utf8(name) && seen.insert(name).second;
  });
}

}  // namespace

bool CsvRecord::ends_at(char c) {
  if (quoted_) {
    closed_ = c == '"';  // a doubled quote closes and reopens the field
    quoted_ = !closed_;
    return false;
  }
  quoted_ = c == '"' && (at_field_ || closed_);
  at_field_ = c == separator_ || c == '\n';
  closed_ = false;
  return c == '\n';
}

std::optional<CsvHeader> csv_header(std::string_view head) {
  std::optional<CsvHeader> best;
  for (const char separator : kSeparators) {
    CsvRecord record(separator);
    size_t bytes = 0;
    while (bytes < head.size() && !record.ends_at(head[bytes])) ++bytes;
    bytes = std::min(bytes + 1, head.size());
    auto names = fields_of(head.substr(0, bytes), separator);
    if (!names) continue;
    if (names->size() > 1 && names->front().empty())
      names->front() = "Unnamed: 0";  // pandas's index
    if (!good_names(*names) || (best && best->names.size() >= names->size())) continue;
    const bool one = names->size() == 1;  // separators in its fields are plain text
    best = CsvHeader{one ? '\n' : separator, std::move(*names), bytes};
  }
  return best;
}

Result<std::string> csv_json(const CsvHeader& header, std::string_view record) {
  if (find_invalid_utf8(record))
    return bad_input("is not UTF-8", "", "convert the file: iconv -t UTF-8");
  const auto fields = fields_of(record, header.separator);
  if (!fields) return bad_input("has a quote inside a field that is not quoted as RFC 4180 has it");
  if (fields->size() != header.names.size())
    return bad_input("has " + std::to_string(fields->size()) + " fields, and the header names " +
                     std::to_string(header.names.size()));
  ordered_json row = ordered_json::object();
  for (size_t i = 0; i < fields->size(); ++i) {
    const std::string &name = header.names[i], &field = (*fields)[i];
    if (field.empty()) {
      row[name] = nullptr;
      continue;
    }
    ordered_json list = holds_list(name, field)
                            ? ordered_json::parse(field, nullptr, /*allow_exceptions=*/false)
                            : ordered_json();
    if (list.is_array())
      row[name] = std::move(list);
    else
      row[name] = field;
  }
  return row.dump();
}

}  // namespace dsj::data
