// Finds the rows of a data file without holding the file: a JSON array, {"samples": [...]}, or one
// JSON value per line. A file of any other form is called what it is, in one error. Internal to engine/data; callers use dataset.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// Where a row lies. Rows count from 0. Lines count from 1: the line where the row starts.
struct RowPlace {
  int64_t row = 0;
  int64_t line = 1;
  int64_t offset = 0;
  int64_t length = 0;
};

/// Called for each row with its text, which is not parsed yet and valid during the call only.
using RowVisitor = std::function<void(const RowPlace&, std::string_view)>;

/// Visits every row in order. `path` names the file in errors; where it ends in .jsonl an object is a
/// row, whatever its keys. BadInput, with path:line: the file has no such form (Parquet, an array that
/// does not end, one object over several lines). Whether a row is JSON is for the visitor to find.
Status scan_rows(const ReadFile& file, const std::string& path, const RowVisitor& visit);

}  // namespace dsj::data
