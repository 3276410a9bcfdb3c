// Finds the rows of a data file without holding it in memory: a JSON array, {"samples": [...]},
// one JSON value per line, or the records of a CSV file. A file of any other form is refused in
// one error that names the form. Internal to engine/data; callers use dataset.h.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/files/csv.h"

namespace dsj::data {

/// Where a row is. Rows count from 0. Lines count from 1: the line in which the row starts; 0
/// if the file has no lines.
struct RowPlace {
  int64_t row = 0;
  int64_t line = 1;
  int64_t offset = 0;
  int64_t length = 0;
};

/// Called for each row with its unparsed text, which is valid only during the call.
using RowVisitor = std::function<void(const RowPlace&, std::string_view)>;

/// The header (csv.h) of a file that is not in JSON or another known form; nullopt if it has none.
Result<std::optional<CsvHeader>> csv_header_of(const ReadFile& file);

/// Visits every row in order; with a header, each record after it as text. `path` is for
/// errors; if it ends in .jsonl, every object is a row, regardless of its keys. Errors:
/// BadInput, with path:line, if the file has no such form (a workbook, an unfinished array, one
/// object over several lines). The visitor must check that a row is JSON.
Status scan_rows(const ReadFile& file, const std::string& path,
                 const std::optional<CsvHeader>& header, const RowVisitor& visit);
/// The same for a file in which every line is a row of any form.
Status scan_lines(const ReadFile& file, const std::string& path, const RowVisitor& visit);

}  // namespace dsj::data
