// Opens a data set: finds its files and checks every row. Methods of dataset.h.
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <utility>

#include "common/files/posix_files.h"
#include "engine/data/dataset.h"
#include "engine/data/each_row.h"
#include "engine/data/files/counts.h"
#include "engine/data/files/row_sources.h"
#include "engine/data/rows.h"

namespace dsj::data {

/// Collects bad rows and reports them in one error.
class BadRows {
 public:
  BadRows(bool several_files, int64_t listed_max)
      : several_files_(several_files), listed_max_(listed_max) {}

  void add(const std::string& path, const RowPlace& place, const std::string& field,
           const std::string& what) {
    if (count_++ >= listed_max_) return;
    text_ += "\n  row " + std::to_string(place.row) +
             (place.line > 0 ? ", line " + std::to_string(place.line) : std::string()) +
             (several_files_ ? " of " + path : std::string()) + ": ";
    if (!field.empty()) text_ += field + ": ";
    text_ += what;
  }

  /// Counts rows that were read, bad or not.
  void see(int64_t rows = 1) { seen_ += rows; }

  Status status(const std::string& where) const {
    if (count_ == 0) return {};
    std::string text = std::to_string(count_) + " of " + std::to_string(seen_) +
                       " rows are bad (rows count from 0):" + text_;
    if (count_ > listed_max_) text += "\n  and " + std::to_string(count_ - listed_max_) + " more";
    return bad_input(std::move(text), where, count_ < seen_ ? "skipBadRows leaves them out" : "");
  }

 private:
  bool several_files_;
  std::string text_;
  int64_t listed_max_, count_ = 0, seen_ = 0;
};

namespace {

/// Counts the rows of a file by kind. A file has one kind; rows of another kind are bad. Pairs
/// are a kind of their own.
class Kinds {
 public:
  using Form = std::pair<RowKind, bool>;
  explicit Kinds(int64_t listed_max) : listed_max_(listed_max) {}

  void add(const RowPlace& place, const ShapedRow& row) {
    Seen& seen = seen_[{row.kind, !row.rejected.empty()}];
    if (seen.rows++ == 0) seen.shape = row.shape;
    if (std::ssize(seen.first) < listed_max_) seen.first.push_back(place);
  }
  /// The most frequent form; of equally frequent ones the first in the file.
  std::optional<Form> most() const {
    const auto found = std::ranges::max_element(seen_, [](const auto& one, const auto& other) {
      return std::pair(one.second.rows, -one.second.first.front().row) <
             std::pair(other.second.rows, -other.second.first.front().row);
    });
    return found == seen_.end() ? std::nullopt : std::optional(found->first);
  }
  /// Reports every row that is not of the file's kind. True if there are none.
  bool tell_others(const std::string& path, BadRows& bad) const {
    const auto most = this->most();
    for (const auto& [other, seen] : seen_) {
      if (other == most) continue;
      const Seen& main = seen_.at(*most);
      const std::string what = "is of shape " + seen.shape + ", but " + std::to_string(main.rows) +
                               " rows of the file are of shape " + main.shape;
      for (int64_t i = 0; i < seen.rows; ++i)
        bad.add(path, seen.first[static_cast<size_t>(std::min(i, std::ssize(seen.first) - 1))], "",
                what);
    }
    return seen_.size() <= 1;
  }

 private:
  struct Seen {
    int64_t rows = 0;
    std::string shape;
    std::vector<RowPlace> first;
  };
  int64_t listed_max_;
  std::map<Form, Seen> seen_;
};

/// A template's message on a row, with its location in the template.
std::string said(const Error& error) {
  return error.message + (error.where.empty() ? "" : " (" + error.where + ")");
}

UnpackOptions unpack_options(const DatasetOptions& options) {
  return {.directory = options.unpack_directory,
          .keep = !options.cache_directory.empty(),
          .now = static_cast<int64_t>(std::time(nullptr)),
          .process = getpid()};
}

const char* name_of(RowKind kind) {
  switch (kind) {
    case RowKind::Alpaca:
      return "alpaca";
    case RowKind::Tokens:
      return "pre-tokenized";
    case RowKind::Text:
      return "text";
    case RowKind::Prompt:
      return "prompt";
    case RowKind::Segments:
      return "segment";
    case RowKind::Chat:
    case RowKind::ChatPrompt:
      break;
  }
  return "chat";
}

/// Whether a row is left out, as far as its fields show.
bool is_left_out(const RowFile& file, std::string_view text, bool skips_bad_rows) {
  if (!skips_bad_rows && text.find("\"\"") == std::string_view::npos) return false;
  const auto row = file.shaped(text);
  if (row && is_empty_text(*row)) return true;
  constexpr int64_t kAnyVocabulary = int64_t{1} << 31;
  return skips_bad_rows && (!row || check_row(*row, kAnyVocabulary));
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::open(const std::string& path, const Tokenizer* tokenizer,
                                               DatasetOptions options) {
  PosixFiles files;
  return open(files, path, tokenizer, std::move(options));
}

Result<std::unique_ptr<Dataset>> Dataset::open(Files& files, const std::string& path,
                                               const Tokenizer* tokenizer, DatasetOptions options) {
  if (options.max_seq_length < 1 || options.vocab_size < 1) {
    return bad_input("max_seq_length is " + std::to_string(options.max_seq_length) +
                         " and vocab_size is " + std::to_string(options.vocab_size) +
                         ", expected at least 1",
                     path);
  }
  std::unique_ptr<Dataset> dataset(new Dataset(path, tokenizer, std::move(options)));
  DSJ_TRY_STATUS(dataset->open_files(files));
  return dataset;
}

Result<int64_t> Dataset::count_rows(Files& files, const std::string& path,
                                    const DatasetOptions& options) {
  Dataset counted(path, nullptr, options);
  DSJ_TRY(const auto sources, row_sources(files, path, options.dataset, options.columns));
  std::vector<int64_t> rows;
  for (const RowSource& source : sources) {
    rows.push_back(0);
    for (const std::string& name : source.files) {
      DSJ_TRY(const RowFile file,
              RowFile::open(files, name, source.names, unpack_options(options), options.aim));
      DSJ_TRY_STATUS(file.scan([&](const RowPlace&, std::string_view text) {
        const bool first = rows.size() == 1 && rows.back() == 0;
        if (first && options.aim == RowAim::Marked) {
          const auto row = file.shaped(text);
          counted.unpaired_ = row && !row->rejected.empty();
        }
        rows.back() += !is_left_out(file, text, options.skips_bad_rows);
      }));
    }
  }
  DSJ_TRY_STATUS(counted.select(rows));
  return counted.rows();
}

Status Dataset::open_files(Files& files) {
  DSJ_TRY(const auto sources, row_sources(files, path_, options_.dataset, options_.columns));
  size_t count = 0;
  for (const RowSource& source : sources) count += source.files.size();
  BadRows bad(count > 1, options_.bad_rows_listed_max);
  std::vector<int64_t> rows;
  Status need;  // a missing tokenizer or template, reported after bad rows
  for (const RowSource& source : sources) {
    rows.push_back(0);
    for (const std::string& path : source.files) {
      DSJ_TRY(RowFile file,
              RowFile::open(files, path, source.names, unpack_options(options_), options_.aim));
      file.turns = options_.chat_template != "auto";
      file.default_system = options_.default_system;
      DSJ_TRY_STATUS(check(files, file, bad, need));
      rows.back() += file.rows();
      firsts_.push_back(all_rows_);
      all_rows_ += file.rows();
      files_.push_back(std::move(file));
    }
  }
  DSJ_TRY_STATUS(bad.status(path_));
  DSJ_TRY_STATUS(need);
  DSJ_TRY_STATUS(find_pairs());
  DSJ_TRY_STATUS(select(rows));
  return options_.scored ? leave_out_long() : Status{};
}

Status Dataset::leave_out_long() {
  const int64_t before = rows();
  std::vector<char> fits(static_cast<size_t>(before));
  DSJ_TRY_STATUS(each_row(
      *this, 0, before, options_.threads,
      [&](int, int64_t row, const Sample& sample) {
        const int64_t longest =
            std::max(sample.second, std::ssize(sample.input_ids) - sample.second);
        fits[static_cast<size_t>(row)] = longest <= options_.max_seq_length;
      },
      RowCut::Never));
  std::vector<int64_t> kept;
  for (int64_t row = 0; row < before; ++row)
    if (fits[static_cast<size_t>(row)] != 0)
      kept.push_back(order_.empty() ? row : order_[static_cast<size_t>(row)]);
  left_out_ = before - std::ssize(kept);
  if (left_out_ == 0) return {};
  if (kept.empty())
    return bad_input("every pair has a row of more than " +
                         std::to_string(options_.max_seq_length) +
                         " tokens (maxSeqLength), and objective reward leaves such pairs out",
                     path_, "raise maxSeqLength");
  order_ = std::move(kept);
  return {};
}

Status Dataset::select(const std::vector<int64_t>& rows) {
  all_rows_ = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  DSJ_TRY(order_, selected_rows(options_.selection, rows));
  return {};
}

Status Dataset::find_pairs() {
  if (options_.aim != RowAim::Marked) return {};
  for (RowFile& file : files_) {
    DSJ_TRY(const std::string raw, file.raw(0));
    const auto first = file.shaped(raw);
    file.pairs = first && !first->rejected.empty();
    if (file.pairs != files_.front().pairs)
      return bad_input(std::string("holds ") + (file.pairs ? "pairs" : "marked answers") +
                           ", and " + files_.front().path() +
                           (file.pairs ? " marked answers" : " pairs"),
                       file.path(), "train on one of the two forms");
  }
  unpaired_ = files_.front().pairs;
  return {};
}

Status Dataset::check_tokenizer(const RowFile& file, RowKind kind) const {
  if (tokenizer_ == nullptr) {
    return bad_input("holds " + std::string(name_of(kind)) + " rows, and there is no tokenizer",
                     file.path(),
                     "the model directory needs tokenizer.json, or the rows input_ids and labels");
  }
  if (kind == RowKind::Segments) return {};
  const auto eos = tokenizer_->eos_id();
  if (!eos) {
    return bad_input("names no eos token, which ends every " +
                         std::string(kind == RowKind::Alpaca ? "alpaca response" : "row"),
                     tokenizer_->file(), "set eos_token in tokenizer_config.json");
  }
  const std::string text = tokenizer_->id_to_token(*eos).value_or("");
  DSJ_TRY(const auto ids, tokenizer_->encode(text, {.add_special_tokens = false}));
  if (ids != std::vector<int32_t>{*eos}) {
    return bad_input("the eos token '" + text + "' is not read as one token from text",
                     tokenizer_->file(), "list it in added_tokens");
  }
  return {};
}

Status Dataset::check_chat_template(Files& files, const RowFile& file) {
  if (tokenizer_ == nullptr) {
    return bad_input("holds chat rows, and there is no tokenizer", file.path(),
                     "the model directory needs tokenizer.json, or the rows input_ids and labels");
  }
  if (chat_template_.key() != 0) return {};
  DSJ_TRY(chat_template_,
          find_chat_template(files, path_parent(tokenizer_->file()), options_.chat_template,
                             *tokenizer_, options_.chat_date));
  return {};
}

Status Dataset::check_need(Files& files, const RowFile& file, RowKind kind) {
  if (kind == RowKind::Tokens) return {};
  return is_chat(kind) ? check_chat_template(files, file) : check_tokenizer(file, kind);
}

bool Dataset::tokenizes_to_check() const {
  return tokenizer_ != nullptr && tokenizer_->vocab_size() > options_.vocab_size;
}

Status Dataset::check(Files& files, RowFile& file, BadRows& bad, Status& need) {
  // A check that tokenizes depends on the whole tokenizer, so it is not cached.
  if (options_.cache_directory.empty() || file.bytes().size() < options_.cached_bytes_min ||
      tokenizes_to_check()) {
    DSJ_TRY([[maybe_unused]] const bool good, check_all(files, file, bad, need));
    return {};
  }
  RowCache cache(files, {.directory = options_.cache_directory,
                         .now = static_cast<int64_t>(std::time(nullptr)),
                         .process = getpid()});
  std::string form = file.form();
  if (options_.learning.inputs) form += " inputs";  // then the answers need not be located
  if (options_.skips_bad_rows) form += " skips";
  if (options_.scored) form += " scored";
  DSJ_TRY(const std::string key, file.key(form + " " + std::to_string(options_.vocab_size)));
  if (auto known = cache.find(key, file.bytes().size())) {
    DSJ_TRY_STATUS(check_need(files, file, known->kind));
    const int64_t by = is_chat(known->kind) ? chat_template_.key() : 0;
    if (by == known->chat_template) {
      file.found = std::move(*known);
      bad.see(file.rows());
      return {};
    }
  }
  DSJ_TRY(const bool good, check_all(files, file, bad, need));
  if (good && options_.cache_writes) (void)cache.store(key, file.found);
  return {};
}

std::optional<RowProblem> Dataset::problem_of(const ShapedRow& row) const {
  for (const ShapedRow& rejected : row.rejected)
    if (auto problem = problem_of(rejected)) return problem;
  if (row.kind == RowKind::Tokens) return std::nullopt;
  if (row.kind == RowKind::Chat) {  // the template may not support the turns
    auto told = conversation_of(row.row, row.text);
    if (!told) return RowProblem{"", told.error().message};
    const auto rendered = chat_pieces(std::move(*told), chat_template_, options_.learning);
    if (!rendered) return RowProblem{"", said(rendered.error())};
  }
  if (row.kind == RowKind::ChatPrompt) {
    const auto rendered = chat_prompt_texts(row, chat_template_);
    if (!rendered) return RowProblem{"", said(rendered.error())};
  }
  if (!tokenizes_to_check()) return std::nullopt;
  const auto cut =
      row_sample(row, tokenizer_, chat_template_, options_.learning, options_.max_seq_length);
  if (!cut) return RowProblem{"", cut.error().message};
  return outside_vocabulary(cut->sample, *tokenizer_, options_.vocab_size);
}

Result<bool> Dataset::check_all(Files& files, RowFile& file, BadRows& bad, Status& need) {
  Kinds kinds(options_.bad_rows_listed_max);
  std::map<RowKind, Status> needs;
  Counts unread(file.found.unread), shapes(file.found.shapes);
  bool good = true;
  // Whether the chat template mentions a turn's field.
  const auto template_reads = [&](const ShapedRow& row, const std::string& name) {
    const size_t dot = name.rfind("[].");
    return is_chat(row.kind) && name.find(' ') == std::string::npos && dot != std::string::npos &&
           chat_template_.key() != 0 && chat_template_.mentions(name.substr(dot + 3));
  };
  const auto check_one = [&](const ShapedRow& row) -> std::optional<RowProblem> {
    const auto [known, is_new] = needs.try_emplace(row.kind);
    if (is_new) known->second = check_need(files, file, row.kind);
    if (auto problem = check_row(row, options_.vocab_size)) return problem;
    if (options_.scored && row.row.contains("margin") && !row.row["margin"].is_number() &&
        !row.row["margin"].is_null())
      return RowProblem{"margin", "is " + kind_of(row.row["margin"]) + ", expected a number"};
    for (const ShapedRow& rejected : row.rejected)
      if (auto problem = check_row(rejected, options_.vocab_size))
        return RowProblem{rejected.own_name(problem->field), problem->what};
    return known->second ? problem_of(row) : std::nullopt;
  };
  Counts left_out(file.found.left_out);
  std::vector<Kinds::Form> forms;  // the forms of the places, to leave out rows of other forms
  DSJ_TRY_STATUS(file.scan([&](const RowPlace& place, std::string_view text) {
    bad.see();
    const auto row = file.shaped(text);
    if (row && is_empty_text(*row)) return left_out.add("text is empty");
    const auto problem = row ? check_one(*row) : row.error();
    if (problem) {
      const std::string field = row ? file.own_name(*row, problem->field) : problem->field;
      if (options_.skips_bad_rows)
        return left_out.add((field.empty() ? "" : field + ": ") + problem->what);
      good = false;
      bad.add(file.path(), place, field, problem->what);
      return;
    }
    file.found.places.push_back({place.offset, place.length});
    if (options_.skips_bad_rows) forms.emplace_back(row->kind, !row->rejected.empty());
    kinds.add(place, *row);
    shapes.add(row->shape);
    for (const std::string& name : unread_fields(row->row, row->kind))
      if (!template_reads(*row, name) && !(options_.scored && name == "margin")) unread.add(name);
  }));
  if (good && file.found.places.empty()) {
    const auto& why = file.found.left_out;
    return bad_input("has no rows" + (why.empty() ? "" : " that can be read: " + why[0].name),
                     file.path());
  }
  if (options_.skips_bad_rows) {
    std::vector<Place> kept;
    for (size_t i = 0; i < forms.size(); ++i) {
      if (forms[i] == kinds.most())
        kept.push_back(file.found.places[i]);
      else
        left_out.add("has another shape than most rows of the file");
    }
    file.found.places = std::move(kept);
  } else {
    good = kinds.tell_others(file.path(), bad) && good;
  }
  file.found.kind = kinds.most().value_or(Kinds::Form{RowKind::Alpaca, false}).first;
  file.found.chat_template = is_chat(file.found.kind) ? chat_template_.key() : 0;
  const Status& its = needs[file.found.kind];
  if (!its && need) need = its;
  return good && its;
}

}  // namespace dsj::data
