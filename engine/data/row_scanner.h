// Finds the rows of a data file without holding it: a JSON array, {"samples": [...]} or one JSON
// value per line. Internal to engine/data; dataset.h is what callers use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

/// Where a row lies. Rows count from 0, lines from 1 (the line the row begins in).
struct RowPlace {
  int64_t row = 0;
  int64_t line = 1;
  int64_t offset = 0;
  int64_t length = 0;
};

/// Called for each row with its text, which is valid during the call and is not parsed yet.
using RowVisitor = std::function<void(const RowPlace&, std::string_view)>;

/// Visits every row in order. `path` tells the form apart (.jsonl: one row per line) and names the
/// file in errors. BadInput with path:line when the file has no such form (an array that does not
/// end, text behind it); a row that is no JSON is the visitor's to find.
Status scan_rows(const ReadFile& file, const std::string& path, const RowVisitor& visit);

}  // namespace dsj::data
