#include "engine/data/row_file.h"

#include <utility>

#include "engine/data/text_file.h"

namespace dsj::data {

Result<RowFile> RowFile::open(Files& files, const std::string& path, RowNames names,
                              const UnpackOptions& unpack) {
  RowFile file;
  file.path_ = path;
  file.names_ = std::move(names);
  DSJ_TRY(file.bytes_, open_row_bytes(files, path, unpack));
  DSJ_TRY(file.header_, csv_header_of(*file.bytes_));
  return file;
}

std::string RowFile::form() const {
  const char* form = header_ ? "csv" : path_.ends_with(".jsonl") ? "lines" : "json";
  return form + (names_.empty() ? std::string() : " " + names_.text());
}

Status RowFile::scan(const RowVisitor& visit) const {
  return scan_rows(*bytes_, path_, header_, visit);
}

Result<nlohmann::json> RowFile::json(std::string_view raw) const {
  if (!header_) return parse_json(raw, path_);
  DSJ_TRY(const std::string row, csv_json(*header_, raw));
  return parse_json(row, path_);
}

std::expected<ShapedRow, RowProblem> RowFile::shaped(std::string_view raw) const {
  if (!header_) return shaped_row(names_, raw);
  const auto row = csv_json(*header_, raw);
  if (!row) return std::unexpected(RowProblem{"", row.error().message});
  return shaped_row(names_, *row);
}

std::string RowFile::own_name(const ShapedRow& row, const std::string& field) const {
  const std::string own = row.own_name(field);
  return own == field ? names_.own_name(field) : own;
}

Result<std::string> RowFile::raw(int64_t row) const {
  const Place& place = found.places[static_cast<size_t>(row)];
  std::string text(static_cast<size_t>(place.length), '\0');
  DSJ_TRY_STATUS(bytes_->read(place.offset, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace dsj::data
