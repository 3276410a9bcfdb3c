#include "engine/data/row_file.h"

#include <algorithm>
#include <utility>

#include "common/files/file_form.h"
#include "engine/data/rows.h"
#include "engine/data/text/text_file.h"
#include "engine/data/text/unicode.h"

namespace dsj::data {

namespace {

constexpr std::string_view kWhitespace = " \t\r\n";

bool is_called_text(std::string_view path) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) path.remove_suffix(packed.size());
  return path.ends_with(".txt");
}

/// Whether the CSV columns are fields of a shape, and not a sentence with commas.
bool has_a_shape(const RowNames& names, const CsvHeader& header, RowAim aim) {
  nlohmann::json row;
  for (const std::string& name : header.names) row[name] = "x";
  return shaped_row(names, row.dump(), aim).has_value();
}

/// Whether the file begins with a JSON row or a list of rows.
Result<bool> begins_with_json(const ReadFile& file) {
  constexpr int64_t kHeadMax = 1 << 20;
  std::string head(static_cast<size_t>(std::min(kHeadMax, file.size())), '\0');
  DSJ_TRY_STATUS(file.read(0, std::as_writable_bytes(std::span(head))));
  const size_t first = head.find_first_not_of(kWhitespace);
  if (first == head.npos) return false;
  const size_t second = head.find_first_not_of(kWhitespace, first + 1);
  if (head[first] == '[') return second != head.npos && head[second] == '{';
  const size_t end = std::min(head.find('\n', first), head.size());
  return head[first] == '{' && nlohmann::json::accept(head.substr(first, end - first));
}

/// Converts a row whose answer is compared or judged to turns: the question, then the answer.
ShapedRow as_asked(ShapedRow row) {
  const bool asks = row.kind == RowKind::Alpaca;
  ShapedRow made = as_turns(std::move(row));
  if (!asks || made.kind != RowKind::Chat) return made;
  made.kind = RowKind::ChatPrompt;
  made.row[kPromptTurns] = made.row["messages"].size() - 1;
  return made;
}

}  // namespace

Result<RowFile> RowFile::open(Files& files, const std::string& path, RowNames names,
                              const UnpackOptions& unpack, RowAim aim) {
  RowFile file;
  file.path_ = path;
  file.names_ = std::move(names);
  file.aim_ = aim;
  DSJ_TRY(file.rows_, open_row_bytes(files, path, unpack));
  if (file.rows_.lines) return file;
  DSJ_TRY(file.header_, csv_header_of(file.bytes()));
  if (!is_called_text(path) || (file.header_ && has_a_shape(file.names_, *file.header_, aim)))
    return file;
  DSJ_TRY_STATUS(refuse_other_form(file.bytes(), path, "text"));
  DSJ_TRY(const bool json, begins_with_json(file.bytes()));
  file.text_ = !json;
  if (file.text_) file.header_.reset();
  return file;
}

std::string RowFile::form() const {
  const char* form = text_                                      ? "text"
                     : header_                                  ? "csv"
                     : rows_.lines || path_.ends_with(".jsonl") ? "lines"
                                                                : "json";
  const char* aim = aim_ == RowAim::Pairs    ? " pairs"
                    : aim_ == RowAim::Marked ? " marked"
                    : aim_ == RowAim::Texts  ? " texts"
                                             : "";
  return std::string(form) + (turns ? " turns" : "") + (default_system.empty() ? "" : " system") +
         (names_.empty() ? std::string() : " " + names_.text()) + aim;
}

Result<std::string> RowFile::key(const std::string& conditions) const {
  if (rows_.content.empty()) return row_key(bytes(), conditions);
  return row_key(rows_.content, conditions);
}

Status RowFile::scan(const RowVisitor& visit) const {
  if (text_) return scan_lines(bytes(), path_, visit);
  if (!rows_.lines) return scan_rows(bytes(), path_, header_, visit);
  return scan_lines(bytes(), path_, [&visit](RowPlace place, std::string_view text) {
    place.line = 0;  // these lines are made by the conversion, not the file's
    visit(place, text);
  });
}

Result<std::string> RowFile::json_text(std::string_view raw) const {
  if (header_) return csv_json(*header_, raw);
  if (!text_) return nulls_for_nan(raw).value_or(std::string(raw));
  if (find_invalid_utf8(raw))
    return bad_input("is not UTF-8", "", "convert the file: iconv -t UTF-8");
  if (raw.ends_with('\r')) raw.remove_suffix(1);
  return nlohmann::json({{"text", raw}}).dump();
}

Result<nlohmann::json> RowFile::json(std::string_view raw) const {
  DSJ_TRY(const std::string row, json_text(raw));
  return parse_json(row, path_);
}

namespace {

/// Gives a row without a system text this one. A conversation's own system turn comes before it.
void add_system(ShapedRow& row, const std::string& text) {
  const bool takes = is_chat(row.kind) || row.kind == RowKind::Alpaca;
  if (!text.empty() && takes && !holds(row.row, "system")) row.row["system"] = text;
  for (ShapedRow& one : row.rejected) add_system(one, text);
}

}  // namespace

std::expected<ShapedRow, RowProblem> RowFile::shaped(std::string_view raw) const {
  const auto text = json_text(raw);
  if (!text) return std::unexpected(RowProblem{"", text.error().message});
  auto row = shaped_row(names_, *text, aim_);
  if (row && turns && (aim_ == RowAim::Pairs || aim_ == RowAim::Marked)) {
    std::vector<ShapedRow> rejected = std::move(row->rejected);
    row = as_asked(std::move(*row));
    for (ShapedRow& one : rejected) row->rejected.push_back(as_asked(std::move(one)));
  } else if (row && turns) {
    row = as_turns(std::move(*row));
  }
  if (row) add_system(*row, default_system);
  return row;
}

std::string RowFile::own_name(const ShapedRow& row, const std::string& field) const {
  const std::string own = row.own_name(field);
  return own == field ? names_.own_name(field) : own;
}

Result<std::string> RowFile::raw(int64_t row) const {
  const Place& place = found.places[static_cast<size_t>(row)];
  std::string text(static_cast<size_t>(place.length), '\0');
  DSJ_TRY_STATUS(bytes().read(place.offset, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace dsj::data
