// One file of rows: its bytes, unpacked, its form, and where its rows lie. A file that is called .txt (also
// .txt.gz, .txt.zst) holds a text in each line, as datasets reads it, unless it begins with a row of JSON or with
// columns of a shape.
// Internal to engine/data; callers use dataset.h.
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
  /// BadInput: it is packed and damaged. Environment: it cannot be read.
  static Result<RowFile> open(Files& files, const std::string& path, RowNames names,
                              const UnpackOptions& unpack, RowAim aim = RowAim::Answers);

  const std::string& path() const { return path_; }
  const ReadFile& bytes() const { return *rows_.file; }
  /// What a check of its rows depends on, beside its bytes.
  std::string form() const;
  /// row_key() of it.
  Result<std::string> key(const std::string& conditions) const;

  /// scan_rows() of it.
  Status scan(const RowVisitor& visit) const;
  /// A row's text as the file has it, as JSON under the file's own names.
  Result<nlohmann::json> json(std::string_view raw) const;
  /// The same in its shape; if `turns`, a question and its answer as turns (rows.h). Several threads may
  /// call it.
  std::expected<ShapedRow, RowProblem> shaped(std::string_view raw) const;
  /// A field of a shaped row as the file calls it.
  std::string own_name(const ShapedRow& row, const std::string& field) const;
  /// Row `row` of what a check found, as the file has it. Error: it cannot be read any more.
  Result<std::string> raw(int64_t row) const;
  int64_t rows() const { return static_cast<int64_t>(found.places.size()); }

  CheckedRows found;  ///< filled by whoever checks the rows
  /// Read for marked answers: its rows are pairs, as the first one shows. Filled by the same.
  bool pairs = false;
  bool turns = false;  ///< a chat template was named, so it renders questions and answers, too

 private:
  /// A row as JSON text.
  Result<std::string> json_text(std::string_view raw) const;

  RowBytes rows_;
  bool text_ = false;  ///< each line is a text
  std::string path_;
  std::optional<CsvHeader> header_;
  RowNames names_;
  RowAim aim_ = RowAim::Answers;
};

}  // namespace dsj::data
