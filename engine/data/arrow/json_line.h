// Writes rows of Arrow's record batches as lines of JSON (columns.h lists the conversions).
// Tested by: tests/engine/data/files/columns_test.cc
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::data {

/// Why a schema cannot be read: "column 'a.b' is of type duration[s], ..."; nullopt if it can.
std::optional<std::string> refused_column(const arrow::Schema& schema);

/// Appends row `row` of the batch and a line end. Preconditions: refused_column() returns
/// nullopt for its schema, and the batch is valid (RecordBatch::ValidateFull).
void append_line(const arrow::RecordBatch& batch, int64_t row, std::string& out);

}  // namespace dsj::data
