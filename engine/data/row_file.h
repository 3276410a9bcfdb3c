// One file of rows: its unpacked bytes, its form and the offsets of its rows. A file named .txt
// (also .txt.gz, .txt.zst) has a text in each line, as in datasets, unless it begins with a row
// of JSON or with columns of a shape. Internal to engine/data; callers use dataset.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/files/csv.h"
#include "engine/data/files/row_bytes.h"
#include "engine/data/files/row_cache.h"
#include "engine/data/files/row_scanner.h"
#include "engine/data/shapes/row_names.h"
#include "engine/data/shapes/row_shape.h"

namespace dsj::data {

class RowFile {
 public:
  /// Errors: BadInput if it is packed and damaged; Environment if it cannot be read.
  static Result<RowFile> open(Files& files, const std::string& path, RowNames names,
                              const UnpackOptions& unpack, RowAim aim = RowAim::Answers);

  const std::string& path() const { return path_; }
  const ReadFile& bytes() const { return *rows_.file; }
  /// What the check of its rows depends on, in addition to its bytes.
  std::string form() const;
  /// row_key() of this file.
  Result<std::string> key(const std::string& conditions) const;

  /// scan_rows() of this file.
  Status scan(const RowVisitor& visit) const;
  /// Parses a row's text from the file; fields keep the file's names.
  Result<nlohmann::json> json(std::string_view raw) const;
  /// The same in its shape; if `turns`, a question and its answer as turns (rows.h). Several
  /// threads may call it.
  std::expected<ShapedRow, RowProblem> shaped(std::string_view raw) const;
  /// The file's name of a field of a shaped row.
  std::string own_name(const ShapedRow& row, const std::string& field) const;
  /// The text of row `row` of `found`. Errors: it can no longer be read.
  Result<std::string> raw(int64_t row) const;
  int64_t rows() const { return static_cast<int64_t>(found.places.size()); }

  CheckedRows found;  ///< filled by the caller that checks the rows
  /// With RowAim::Marked: the rows are pairs, as the first one shows. Filled with `found`.
  bool pairs = false;
  bool turns = false;  ///< a chat template was named, which renders questions and answers, too
  std::string default_system;  ///< DatasetOptions::default_system

 private:
  /// Converts a row to JSON text.
  Result<std::string> json_text(std::string_view raw) const;

  RowBytes rows_;
  bool text_ = false;  ///< each line is a row of text
  std::string path_;
  std::optional<CsvHeader> header_;
  RowNames names_;
  RowAim aim_ = RowAim::Answers;
};

}  // namespace dsj::data
