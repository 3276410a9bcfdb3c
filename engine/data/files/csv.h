// Rows of a CSV file (RFC 4180): a header names the columns, each further record is a row of texts.
// Commas, tabs, semicolons or bars separate; a quoted field may hold line ends, and "" is a quote.
// Internal to engine/data.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"

namespace dsj::data {

struct CsvHeader {
  char separator = ',';
  std::vector<std::string> names;
  size_t bytes = 0;  ///< of the header's record, with its line end
};

/// Finds where records end, byte by byte.
class CsvRecord {
 public:
  explicit CsvRecord(char separator) : separator_(separator) {}
  /// Whether `c` is the line end behind the record.
  bool ends_at(char c);
  bool in_quotes() const { return quoted_; }

 private:
  char separator_;
  bool quoted_ = false, closed_ = false, at_field_ = true;
};

/// The header of a file that begins with `head` (its byte order mark removed). nullopt: it has none: a
/// line without a separator, an empty or a repeated name. One column has no separator: it must be
/// "text".
std::optional<CsvHeader> csv_header(std::string_view head);

/// A record as the text of a JSON object: a text for each column, null for an empty field. A list in
/// a column of lists (messages, history, input_ids ...) is read as JSON. BadInput: the
/// record has another number of fields than the header, a quote in the wrong place, bytes that are
/// not UTF-8.
Result<std::string> csv_json(const CsvHeader& header, std::string_view record);

}  // namespace dsj::data
