// Rows of a CSV file (RFC 4180): a header names the columns, each further record is a row of
// texts. The separator is a comma, tab, semicolon or bar; a quoted field may hold line ends,
// and "" is a quote.
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
  size_t bytes = 0;  ///< length of the header's record, with its line end
};

/// Finds where records end, byte by byte.
class CsvRecord {
 public:
  explicit CsvRecord(char separator) : separator_(separator) {}
  /// Consumes `c`. Whether it is the line end after the record.
  bool ends_at(char c);
  bool in_quotes() const { return quoted_; }

 private:
  char separator_;
  bool quoted_ = false, closed_ = false, at_field_ = true;
};

/// The header of a file that begins with `head` (without its byte order mark). nullopt if it
/// has none: the first line has no separator, or an empty or repeated name. A single column has
/// no separator, so it must be "text", or one of the lists that are a whole row.
std::optional<CsvHeader> csv_header(std::string_view head);

/// A record as the text of a JSON object: a text per column, null for an empty field. A list in
/// a column of lists (messages, history, input_ids ...) is read as JSON. Errors: BadInput if
/// the record and the header differ in the number of fields, if a quote is misplaced, or if
/// bytes are not UTF-8.
Result<std::string> csv_json(const CsvHeader& header, std::string_view record);

}  // namespace dsj::data
