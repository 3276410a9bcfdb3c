#include "engine/data/files/row_scanner.h"

#include <algorithm>

#include "common/files/file_form.h"

namespace dsj::data {
namespace {

constexpr int64_t kBufferBytes = 1 << 20;
constexpr int kEnd = -1;

bool is_space(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/// A file's bytes, one at a time. A failed read looks like the end of the file; see status().
class Bytes {
 public:
  explicit Bytes(const ReadFile& file) : file_(&file) {}

  int peek() {
    if (at_ == buffer_.size() && !fill()) return kEnd;
    return static_cast<unsigned char>(buffer_[at_]);
  }
  int next() {
    const int c = peek();
    if (c == kEnd) return c;
    ++at_;
    line_ += c == '\n';
    return c;
  }
  void skip_space() {
    while (is_space(peek())) next();
  }
  /// The first bytes of the file.
  std::string_view head() {
    rewind();
    peek();
    return std::string_view(buffer_.data(), std::min(buffer_.size(), kFileFormBytes));
  }
  /// Back to the file's beginning; bytes in memory are not read again.
  void rewind() {
    if (begin_ > 0) buffer_.clear();
    begin_ = 0;
    at_ = 0;
    line_ = 1;
  }
  int64_t offset() const { return begin_ + static_cast<int64_t>(at_); }
  int64_t line() const { return line_; }
  const Status& status() const { return status_; }

 private:
  bool fill() {
    begin_ += static_cast<int64_t>(buffer_.size());
    at_ = 0;
    buffer_.resize(static_cast<std::size_t>(std::min(kBufferBytes, file_->size() - begin_)));
    if (buffer_.empty()) return false;
    status_ = file_->read(begin_, std::as_writable_bytes(std::span(buffer_)));
    if (!status_) buffer_.clear();
    return status_.has_value();
  }

  const ReadFile* file_;
  std::vector<char> buffer_;
  std::size_t at_ = 0;
  int64_t begin_ = 0, line_ = 1;
  Status status_;
};

class Scanner {
 public:
  Scanner(const ReadFile& file, const std::string& path, const std::optional<CsvHeader>& header,
          const RowVisitor& visit)
      : path_(path), header_(header), visit_(visit), bytes_(file) {}

  Status run() {
    if (const auto form = file_form(bytes_.head())) {
      return bad_input(
          "is " + std::string(form->name) + ", expected rows as JSON, JSONL, CSV, Parquet or Arrow",
          path_, std::string(form->remedy));
    }
    begin_anew();
    const int first = bytes_.peek();
    DSJ_TRY_STATUS(bytes_.status());
    if (first == kEnd) return bad_input("is empty", path_, "rows as JSON or JSONL are expected");
    if (first == '[') {
      DSJ_TRY_STATUS(array());
      return nothing_more();
    }
    if (first != '{') return header_ ? records() : no_json();
    if (!path_.ends_with(".jsonl")) {
      DSJ_TRY_STATUS(object());
      if (found_samples_) return nothing_more();
      begin_anew();
    }
    DSJ_TRY_STATUS(first_row_is_a_line());
    begin_anew();
    return lines();
  }

  Status lines() {
    while (bytes_.peek() != kEnd) {
      RowPlace place = here();
      text_.clear();
      for (int c = bytes_.next(); c != kEnd && c != '\n'; c = bytes_.next()) {
        text_.push_back(static_cast<char>(c));
      }
      if (std::ranges::all_of(text_, [](char c) { return is_space(c); })) continue;
      emit(place);
    }
    return bytes_.status();
  }

 private:
  void begin_anew() {
    bytes_.rewind();
    if (bytes_.peek() == 0xEF) {  // byte order mark
      for (int i = 0; i < 3; ++i) bytes_.next();
    }
    bytes_.skip_space();
  }

  std::unexpected<Error> at_line(const std::string& what) {
    if (!bytes_.status()) return std::unexpected(bytes_.status().error());
    return bad_input(what, path_ + ":" + std::to_string(bytes_.line()));
  }

  Status no_json() {
    return bad_input(
        "begins neither with [ nor with {, and its first line is not a CSV header with a name "
        "for each column",
        path_ + ":1", "rows as JSON, JSONL or CSV are expected");
  }

  Status records() {
    bytes_.rewind();
    if (bytes_.peek() == 0xEF) {
      for (int i = 0; i < 3; ++i) bytes_.next();
    }
    for (size_t i = 0; i < header_->bytes; ++i) bytes_.next();
    while (bytes_.peek() != kEnd) {
      const RowPlace place = here();
      CsvRecord record(header_->separator);
      text_.clear();
      for (int c = bytes_.next(); c != kEnd; c = bytes_.next()) {
        if (record.ends_at(static_cast<char>(c))) break;
        text_.push_back(static_cast<char>(c));
      }
      DSJ_TRY_STATUS(bytes_.status());
      if (record.in_quotes())
        return at_line("ends inside a quoted field of row " + std::to_string(place.row) +
                       ", which begins in line " + std::to_string(place.line));
      if (std::ranges::all_of(text_, [](char c) { return is_space(c); })) continue;
      emit(place);
    }
    return bytes_.status();
  }

  /// Fails if the first row is an object over several lines. A line end in a string, or an
  /// object that does not end, is damage, which the visitor of the rows reports.
  Status first_row_is_a_line() {
    const int64_t first = bytes_.line();
    bool in_string = false;
    for (int depth = 0;;) {
      const int c = bytes_.next();
      if (c == kEnd || (in_string && c == '\n')) return bytes_.status();
      if (in_string && c == '\\') bytes_.next();
      if (c == '"') in_string = !in_string;
      if (in_string) continue;
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      if (depth == 0) break;
    }
    const int64_t last = bytes_.line();
    if (last == first) return {};
    bytes_.skip_space();
    const bool alone = bytes_.peek() == kEnd;
    return bad_input(
        std::string(alone ? "is one JSON object" : "begins with a JSON object") + " over lines " +
            std::to_string(first) + " to " + std::to_string(last) +
            ", expected a list of rows, or one row per line",
        path_,
        "jq -c . FILE > rows.jsonl writes each object on a line; jq -c '.KEY[]' FILE, if "
        "the rows lie in a list under KEY");
  }

  Status nothing_more() {
    bytes_.skip_space();
    if (bytes_.peek() != kEnd) return at_line("has text behind its last bracket");
    return bytes_.status();
  }

  Status array() {
    bytes_.next();
    for (bool first = true;; first = false) {
      bytes_.skip_space();
      if (first && bytes_.peek() == ']') break;
      RowPlace place = here();
      if (!value()) {
        return at_line("ends inside row " + std::to_string(place.row) + ", which begins in line " +
                       std::to_string(place.line));
      }
      emit(place);
      if (bytes_.peek() == ']') break;
      if (bytes_.next() != ',') return at_line("has a } where a , or ] is expected");
    }
    bytes_.next();
    return {};
  }

  /// An object with "samples": the elements of that array are the rows. Other values are skipped.
  Status object() {
    bytes_.next();
    while (true) {
      bytes_.skip_space();
      if (bytes_.peek() != '"') return {};
      text_.clear();
      string();
      const std::string key = text_;
      bytes_.skip_space();
      if (bytes_.next() != ':') return {};
      bytes_.skip_space();
      if (key == "\"samples\"" && bytes_.peek() == '[') {
        found_samples_ = true;
        DSJ_TRY_STATUS(array());
        bytes_.skip_space();
      } else if (!value()) {
        return found_samples_ ? Status(at_line("ends inside its object")) : bytes_.status();
      }
      if (bytes_.peek() != ',') break;
      bytes_.next();
    }
    if (bytes_.next() != '}' && found_samples_) return at_line("does not end its object with }");
    return {};
  }

  /// Reads a string with its quotes into text_.
  void string() {
    text_.push_back(static_cast<char>(bytes_.next()));
    for (int c = bytes_.next(); c != kEnd; c = bytes_.next()) {
      text_.push_back(static_cast<char>(c));
      if (c == '"') return;
      if (c == '\\' && bytes_.peek() != kEnd) text_.push_back(static_cast<char>(bytes_.next()));
    }
  }

  /// Reads a value into text_, up to the ',', ']' or '}' after it. False if the file ended.
  bool value() {
    text_.clear();
    for (int depth = 0;;) {
      const int c = bytes_.peek();
      if (c == kEnd) return false;
      if (c == '"') {
        string();
        continue;
      }
      if (depth == 0 && (c == ',' || c == ']' || c == '}')) break;
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      text_.push_back(static_cast<char>(bytes_.next()));
    }
    while (!text_.empty() && is_space(text_.back())) text_.pop_back();
    return true;
  }

  RowPlace here() const {
    return {.row = row_, .line = bytes_.line(), .offset = bytes_.offset(), .length = 0};
  }
  void emit(RowPlace place) {
    place.length = static_cast<int64_t>(text_.size());
    visit_(place, text_);
    ++row_;
  }

  const std::string& path_;
  const std::optional<CsvHeader>& header_;
  const RowVisitor& visit_;
  Bytes bytes_;
  std::string text_;
  int64_t row_ = 0;
  bool found_samples_ = false;
};

}  // namespace

Result<std::optional<CsvHeader>> csv_header_of(const ReadFile& file) {
  constexpr int64_t kHeaderMax = 1 << 16;
  std::string head(static_cast<size_t>(std::min(kHeaderMax, file.size())), '\0');
  DSJ_TRY_STATUS(file.read(0, std::as_writable_bytes(std::span(head))));
  std::string_view text = head;
  if (file_form(text.substr(0, kFileFormBytes))) return std::nullopt;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] == '[' || text[first] == '{') return std::nullopt;
  return csv_header(text);
}

Status scan_rows(const ReadFile& file, const std::string& path,
                 const std::optional<CsvHeader>& header, const RowVisitor& visit) {
  return Scanner(file, path, header, visit).run();
}

Status scan_lines(const ReadFile& file, const std::string& path, const RowVisitor& visit) {
  const std::optional<CsvHeader> none;
  return Scanner(file, path, none, visit).lines();
}

}  // namespace dsj::data
