#include "engine/data/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>

#include "common/check.h"
#include "common/files/posix_files.h"
#include "engine/data/row_scanner.h"
#include "engine/data/rows.h"
#include "engine/data/text_file.h"

namespace dsj::data {
namespace {

using nlohmann::json;

/// Collects what is wrong with rows and reports it in one error.
class BadRows {
 public:
  BadRows(std::string path, int64_t listed_max) : path_(std::move(path)), listed_max_(listed_max) {}

  void add(const RowPlace& place, const RowProblem& problem) {
    if (count_++ >= listed_max_) return;
    text_ += "\n  row " + std::to_string(place.row) + ", line " + std::to_string(place.line) + ": ";
    if (!problem.field.empty()) text_ += problem.field + ": ";
    text_ += problem.what;
  }

  Status status(int64_t rows) const {
    if (count_ == 0) return {};
    std::string text = std::to_string(count_) + " of " + std::to_string(rows) +
                       " rows are bad (rows count from 0):" + text_;
    if (count_ > listed_max_) text += "\n  and " + std::to_string(count_ - listed_max_) + " more";
    return bad_input(std::move(text), path_);
  }

 private:
  std::string path_, text_;
  int64_t listed_max_, count_ = 0;
};

const char* name_of(RowKind kind) {
  switch (kind) {
    case RowKind::Alpaca:
      return "alpaca";
    case RowKind::Chat:
      return "chat";
    case RowKind::Tokens:
      break;
  }
  return "pre-tokenized";
}

/// A label or id that the model cannot have. The tokenizer produced it.
std::optional<RowProblem> outside_vocabulary(const Sample& sample, const Tokenizer& tokenizer,
                                             int64_t vocab_size) {
  for (const int32_t id : sample.input_ids) {
    if (id < vocab_size) continue;
    return RowProblem{
        "", "becomes token " + std::to_string(id) + " ('" + tokenizer.id_to_token(id).value_or("") +
                "'), but the model's vocabulary has " + std::to_string(vocab_size) + " entries"};
  }
  return std::nullopt;
}

/// What a template says of a row, and where in the template.
std::string said(const Error& error) {
  return error.message + (error.where.empty() ? "" : " (" + error.where + ")");
}

}  // namespace

Dataset::Dataset(std::unique_ptr<ReadFile> file, std::string path, const Tokenizer* tokenizer,
                 DatasetOptions options)
    : file_(std::move(file)), path_(std::move(path)), tokenizer_(tokenizer), options_(options) {}

Result<std::unique_ptr<Dataset>> Dataset::open(const std::string& path, const Tokenizer* tokenizer,
                                               DatasetOptions options) {
  PosixFiles files;
  return open(files, path, tokenizer, options);
}

Result<std::unique_ptr<Dataset>> Dataset::open(Files& files, const std::string& path,
                                               const Tokenizer* tokenizer, DatasetOptions options) {
  if (options.max_seq_length < 1 || options.vocab_size < 1) {
    return bad_input("max_seq_length is " + std::to_string(options.max_seq_length) +
                         " and vocab_size is " + std::to_string(options.vocab_size) +
                         ", expected at least 1",
                     path);
  }
  DSJ_TRY(auto file, files.open_read(path));
  std::unique_ptr<Dataset> dataset(new Dataset(std::move(file), path, tokenizer, options));
  DSJ_TRY_STATUS(dataset->check(files));
  return dataset;
}

Result<int64_t> Dataset::count_rows(Files& files, const std::string& path) {
  DSJ_TRY(const auto file, files.open_read(path));
  int64_t rows = 0;
  DSJ_TRY_STATUS(scan_rows(*file, path, [&rows](const RowPlace&, std::string_view) { ++rows; }));
  return rows;
}

Status Dataset::check_tokenizer() const {
  if (tokenizer_ == nullptr) {
    return bad_input("holds alpaca rows, and there is no tokenizer", path_,
                     "the model directory needs tokenizer.json, or the rows input_ids and labels");
  }
  const auto eos = tokenizer_->eos_id();
  if (!eos) {
    return bad_input("names no eos token, which ends every alpaca response", tokenizer_->file(),
                     "set eos_token in tokenizer_config.json");
  }
  const std::string text = tokenizer_->id_to_token(*eos).value_or("");
  DSJ_TRY(const auto ids, tokenizer_->encode(text, {.add_special_tokens = false}));
  if (ids != std::vector<int32_t>{*eos}) {
    return bad_input("the eos token '" + text + "' is not read as one token from text",
                     tokenizer_->file(), "list it in added_tokens");
  }
  return {};
}

Status Dataset::check_chat_template(Files& files) {
  if (tokenizer_ == nullptr) {
    return bad_input("holds chat rows, and there is no tokenizer", path_,
                     "the model directory needs tokenizer.json, or the rows input_ids and labels");
  }
  DSJ_TRY(chat_template_,
          find_chat_template(files, path_parent(tokenizer_->file()), options_.chat_template,
                             *tokenizer_, options_.chat_date));
  return {};
}

Result<Cut> Dataset::tokenize(const json& row, std::string_view text,
                              int64_t max_seq_length) const {
  if (kind_ == RowKind::Chat) {
    return chat_sample(row, text, *tokenizer_, chat_template_, options_.learning, max_seq_length);
  }
  return alpaca_sample(row, *tokenizer_, options_.learning, max_seq_length);
}

int64_t Dataset::tokens_at_most(int64_t row) const {
  // A token is at least a byte of text: of the row, or of what its template puts around it. A row of
  // ids has two numbers and two commas for each.
  constexpr int64_t kTemplate = 256;
  return kind_ == RowKind::Tokens ? bytes_of(row) / 4 : bytes_of(row) + kTemplate;
}

bool Dataset::tokenizes_to_check() const {
  return tokenizer_ != nullptr && tokenizer_->vocab_size() > options_.vocab_size;
}

Result<bool> Dataset::take(Files& files, CheckedRows known) {
  kind_ = known.kind;
  if (kind_ == RowKind::Alpaca) DSJ_TRY_STATUS(check_tokenizer());
  if (kind_ == RowKind::Chat) DSJ_TRY_STATUS(check_chat_template(files));
  if (chat_template_.key() != known.chat_template) return false;
  places_ = std::move(known.places);
  unread_ = std::move(known.unread);
  return true;
}

std::string Dataset::answer_end_note() const {
  const auto end = answer_end();
  if (!end || !*end || std::ranges::count(tokenizer_->stop_ids(), **end) > 0) return {};
  const auto name = [&](std::optional<int32_t> id) {
    return id ? tokenizer_->id_to_token(*id).value_or("") : std::string("not set");
  };
  return "the answers in " + path_ + " end with " + name(**end) + ", but the model's eos token is " +
         name(tokenizer_->eos_id()) +
         ": what is exported will not stop at the end of an answer; --eos_token '" + name(**end) +
         "' makes it the eos token of the exported model";
}

std::vector<std::string> Dataset::notes() const {
  std::vector<std::string> notes;
  if (kind_ != RowKind::Chat && options_.chat_template != "auto")
    notes.push_back("its rows have no messages: chatTemplate " + options_.chat_template +
                    " is not used");
  if (!unread_.empty()) notes.push_back(unread_note());
  return notes;
}

std::string Dataset::unread_note() const {
  constexpr size_t kListed = 20;
  std::string text = "nothing reads these fields of its rows: ";
  for (size_t i = 0; i < std::min(kListed, unread_.size()); ++i) {
    text += (i == 0 ? "" : ", ") + unread_[i].name + " (" + std::to_string(unread_[i].rows) +
            (unread_[i].rows == 1 ? " row)" : " rows)");
  }
  if (unread_.size() > kListed)
    text += " and " + std::to_string(unread_.size() - kListed) + " more";
  return text;
}

Status Dataset::check(Files& files) {
  // The check of a file that is tokenized for it depends on the whole tokenizer.
  if (options_.cache_directory.empty() || file_->size() < options_.cached_bytes_min ||
      tokenizes_to_check()) {
    return check_all(files);
  }
  RowCache cache(files, {.directory = options_.cache_directory,
                         .now = static_cast<int64_t>(std::time(nullptr)),
                         .process = getpid()});
  std::string form = path_.ends_with(".jsonl") ? "lines" : "json";
  if (options_.learning.inputs) form += " inputs";  // then nothing need be known of the answers
  DSJ_TRY(const std::string key, row_key(*file_, form + " " + std::to_string(options_.vocab_size)));
  if (auto known = cache.find(key, file_->size())) {
    DSJ_TRY(const bool holds, take(files, std::move(*known)));
    if (holds) return {};
  }
  DSJ_TRY_STATUS(check_all(files));
  if (options_.cache_writes)
    (void)cache.store(key, {kind_, chat_template_.key(), places_, unread_});
  return {};
}

Status Dataset::check_all(Files& files) {
  BadRows bad(path_, options_.bad_rows_listed_max);
  Status tokenizer_status;
  const bool tokenize_all = tokenizes_to_check();
  std::map<std::string, size_t> place_of_unread;
  // A turn's field that the chat template speaks of.
  const auto template_reads = [&](const std::string& name) {
    const size_t dot = name.rfind("[].");
    return kind_ == RowKind::Chat && name.find(' ') == std::string::npos && tokenizer_status &&
           dot != std::string::npos && chat_template_.key() != 0 &&
           chat_template_.mentions(name.substr(dot + 3));
  };
  const auto count_unread = [&](const json& row) {
    for (const std::string& name : unread_fields(row, kind_)) {
      if (template_reads(name)) continue;
      const auto [found, is_new] = place_of_unread.try_emplace(name, unread_.size());
      if (is_new) unread_.push_back({name});
      ++unread_[found->second].rows;
    }
  };
  const auto check = [&](const RowPlace& place, const json& row,
                         std::string_view text) -> std::optional<RowProblem> {
    if (auto problem = refused_field(row)) return problem;
    const auto kind = row_kind(row);
    if (!kind) return kind.error();
    if (place.row == 0) {
      kind_ = *kind;
      if (kind_ == RowKind::Alpaca) tokenizer_status = check_tokenizer();
      if (kind_ == RowKind::Chat) tokenizer_status = check_chat_template(files);
    }
    if (*kind != kind_) {
      return RowProblem{"",
                        std::string("is ") + name_of(*kind) + ", but row 0 is " + name_of(kind_)};
    }
    if (kind_ == RowKind::Tokens) return check_tokens(row, options_.vocab_size);
    if (auto problem = kind_ == RowKind::Chat ? check_chat(row) : check_alpaca(row)) return problem;
    if (!tokenizer_status) return std::nullopt;
    if (kind_ == RowKind::Chat) {  // the template may have no form for the turns
      auto told = conversation_of(row, text);
      if (!told) return RowProblem{"", told.error().message};
      const auto rendered = chat_pieces(std::move(*told), chat_template_, options_.learning);
      if (!rendered) return RowProblem{"", said(rendered.error())};
    }
    if (!tokenize_all) return std::nullopt;
    const auto cut = tokenize(row, text, options_.max_seq_length);
    if (!cut) return RowProblem{"", cut.error().message};
    return outside_vocabulary(cut->sample, *tokenizer_, options_.vocab_size);
  };
  DSJ_TRY_STATUS(scan_rows(*file_, path_, [&](const RowPlace& place, std::string_view text) {
    places_.push_back({place.offset, place.length});
    const auto row = parse_json(text, path_);
    const auto problem = row ? check(place, *row, text) : RowProblem{"", row.error().message};
    if (problem) {
      bad.add(place, *problem);
    } else {
      count_unread(*row);
    }
  }));
  DSJ_TRY_STATUS(bad.status(rows()));
  if (places_.empty()) return bad_input("has no rows", path_);
  return tokenizer_status;
}

Result<Sample> Dataset::at(int64_t row) const {
  DSJ_TRY(Cut cut, read(row, options_.max_seq_length));
  truncated_ += cut.truncated;
  without_target_ +=
      std::ranges::all_of(cut.sample.labels, [](int32_t label) { return label == kIgnoredLabel; });
  return std::move(cut.sample);
}

Result<Sample> Dataset::whole(int64_t row) const {
  constexpr int64_t kAnyLength = int64_t{1} << 60;
  DSJ_TRY(Cut cut, read(row, kAnyLength));
  return std::move(cut.sample);
}

Result<Cut> Dataset::read(int64_t row, int64_t max_seq_length) const {
  DSJ_CHECK(row >= 0 && row < rows(), "row %lld", static_cast<long long>(row));
  DSJ_TRY(const std::string text, text_at(row));
  return cut_of(text, max_seq_length, path_ + ": row " + std::to_string(row));
}

Result<std::string> Dataset::text_at(int64_t row) const {
  const Place& place = places_[static_cast<std::size_t>(row)];
  std::string text(static_cast<std::size_t>(place.length), '\0');
  DSJ_TRY_STATUS(file_->read(place.offset, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<std::optional<int32_t>> Dataset::answer_end() const {
  constexpr int64_t kRowsAsked = 16;
  for (int64_t row = 0; kind_ == RowKind::Chat && row < std::min(kRowsAsked, rows()); ++row) {
    DSJ_TRY(const auto text, text_at(row));
    DSJ_TRY(const auto parsed, parse_json(text, path_));
    DSJ_TRY(const Cut cut, tokenize(parsed, text, options_.max_seq_length));
    const std::vector<int32_t>& labels = cut.sample.labels;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool last = i + 1 == labels.size();
      const bool ends = last ? !cut.truncated : labels[i + 1] == kIgnoredLabel;
      if (labels[i] != kIgnoredLabel && ends) return labels[i];
    }
  }
  return std::nullopt;
}

Result<Cut> Dataset::cut_of(const std::string& text, int64_t max_seq_length,
                            const std::string& where) const {
  // Rows were checked when the file was opened. What is wrong now has changed since.
  const auto changed = [&](const std::string& what) {
    return fail(ErrorKind::Environment, "the file was changed while it was in use: " + what, where);
  };
  const auto row = parse_json(text, path_);
  if (!row) return changed(row.error().message);
  Cut cut;
  if (kind_ == RowKind::Tokens) {
    if (const auto problem = check_tokens(*row, options_.vocab_size)) {
      return changed(problem->field + " " + problem->what);
    }
    cut = tokens_sample(*row, max_seq_length);
  } else {
    const auto problem_found = kind_ == RowKind::Chat ? check_chat(*row) : check_alpaca(*row);
    if (problem_found) return changed(problem_found->field + " " + problem_found->what);
    auto tokenized = tokenize(*row, text, max_seq_length);
    if (!tokenized) return bad_input(tokenized.error().message, where);
    cut = std::move(*tokenized);
    if (const auto problem = outside_vocabulary(cut.sample, *tokenizer_, options_.vocab_size)) {
      return bad_input(problem->what, where);
    }
  }
  return cut;
}

}  // namespace dsj::data
