// Rows of Arrow's record batches as lines of JSON (columns.h says which value becomes what).
// Tested by: tests/engine/data/files/columns_test.cc
#pragma once

#include <arrow/api.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dsj::data {

/// Why rows of a schema cannot be read: "column 'a.b' is of type duration[s], ...". nullopt: they can.
std::optional<std::string> refused_column(const arrow::Schema& schema);

/// Appends row `row` of the batch and a line end. Preconditions: nothing of its schema is refused, and
/// the batch is valid (RecordBatch::ValidateFull).
void append_line(const arrow::RecordBatch& batch, int64_t row, std::string& out);

}  // namespace dsj::data
