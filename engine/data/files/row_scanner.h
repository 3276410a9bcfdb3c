// Finds the rows of a data file without holding the file: a JSON array, {"samples": [...]}, one JSON
// value per line, or the records of a CSV file. A file of any other form is called what it is, in one error. Internal to engine/data; callers use dataset.h.
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

/// Where a row lies. Rows count from 0. Lines count from 1: the line where the row starts; 0: the
/// file has no lines.
struct RowPlace {
  int64_t row = 0;
  int64_t line = 1;
  int64_t offset = 0;
  int64_t length = 0;
};

/// Called for each row with its text, which is not parsed yet and valid during the call only.
using RowVisitor = std::function<void(const RowPlace&, std::string_view)>;

/// The header of a file that is neither JSON nor of another known form (csv.h). nullopt: it has none.
Result<std::optional<CsvHeader>> csv_header_of(const ReadFile& file);

/// Visits every row in order; with a header each record behind it, as it is written. `path` names the file in errors; where it ends in .jsonl an object is a
/// row, whatever its keys. BadInput, with path:line: the file has no such form (a workbook, an array that
/// does not end, one object over several lines). Whether a row is JSON is for the visitor to find.
Status scan_rows(const ReadFile& file, const std::string& path,
                 const std::optional<CsvHeader>& header, const RowVisitor& visit);
/// The same of a file with a row in each line, whatever the rows are.
Status scan_lines(const ReadFile& file, const std::string& path, const RowVisitor& visit);

}  // namespace dsj::data
