#include "engine/data/dataset.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <numeric>
#include <utility>

#include "common/check.h"
#include "common/files/posix_files.h"
#include "engine/data/row_sources.h"
#include "engine/data/rows.h"

namespace dsj::data {

/// Collects what is wrong with rows and reports it in one error.
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

  Status status(int64_t rows, const std::string& where) const {
    if (count_ == 0) return {};
    std::string text = std::to_string(count_) + " of " + std::to_string(rows) +
                       " rows are bad (rows count from 0):" + text_;
    if (count_ > listed_max_) text += "\n  and " + std::to_string(count_ - listed_max_) + " more";
    return bad_input(std::move(text), where);
  }

 private:
  bool several_files_;
  std::string text_;
  int64_t listed_max_, count_ = 0;
};

namespace {

/// Counts of names, in the order in which they are found.
class Counts {
 public:
  explicit Counts(std::vector<UnreadField>& to) : to_(to) {}
  void add(const std::string& name, int64_t rows = 1) {
    const auto [found, is_new] = places_.try_emplace(name, to_.size());
    if (is_new) to_.push_back({name});
    to_[found->second].rows += rows;
  }

 private:
  std::vector<UnreadField>& to_;
  std::map<std::string, size_t> places_;
};

/// The rows of a file by their kind: one kind is the file's, a row of another is bad. Pairs are a kind of
/// their own.
class Kinds {
 public:
  using Form = std::pair<RowKind, bool>;
  explicit Kinds(int64_t listed_max) : listed_max_(listed_max) {}

  void add(const RowPlace& place, const ShapedRow& row) {
    Seen& seen = seen_[{row.kind, !row.rejected.empty()}];
    if (seen.rows++ == 0) seen.shape = row.shape;
    if (std::ssize(seen.first) < listed_max_) seen.first.push_back(place);
  }
  /// Of most rows; of two as frequent ones that which comes first in the file.
  std::optional<Form> most() const {
    const auto found = std::ranges::max_element(seen_, [](const auto& one, const auto& other) {
      return std::pair(one.second.rows, -one.second.first.front().row) <
             std::pair(other.second.rows, -other.second.first.front().row);
    });
    return found == seen_.end() ? std::nullopt : std::optional(found->first);
  }
  /// Reports every row that is not of the file's kind. True: there are none.
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

UnpackOptions unpack_options(const DatasetOptions& options) {
  return {.directory = options.unpack_directory,
          .keep = !options.cache_directory.empty(),
          .now = static_cast<int64_t>(std::time(nullptr)),
          .process = getpid()};
}

constexpr int64_t kAnyLength = int64_t{1} << 60;

/// Cuts a row's beginning.
void keep_end(Cut& cut, int64_t max_seq_length) {
  auto& ids = cut.sample.input_ids;
  auto& labels = cut.sample.labels;
  cut.truncated = std::ssize(ids) > max_seq_length;
  if (!cut.truncated) return;
  ids.erase(ids.begin(), ids.end() - max_seq_length);
  labels.erase(labels.begin(), labels.end() - max_seq_length);
}

std::string unread_note(const std::vector<UnreadField>& unread) {
  constexpr size_t kListed = 20;
  std::string text = "nothing reads these fields of its rows: ";
  for (size_t i = 0; i < std::min(kListed, unread.size()); ++i) {
    text += (i == 0 ? "" : ", ") + unread[i].name + " (" + std::to_string(unread[i].rows) +
            (unread[i].rows == 1 ? " row)" : " rows)");
  }
  if (unread.size() > kListed) text += " and " + std::to_string(unread.size() - kListed) + " more";
  return text;
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

}  // namespace

DatasetOptions evaluation_options(DatasetOptions options, std::string dataset,
                                  int64_t max_samples) {
  options.dataset = std::move(dataset);
  if (!options.dataset.empty() && max_samples == 0) max_samples = options.selection.max_samples;
  options.selection = {.max_samples = max_samples};
  return options;
}

Dataset::Dataset(std::string path, const Tokenizer* tokenizer, DatasetOptions options)
    : path_(std::move(path)), tokenizer_(tokenizer), options_(std::move(options)) {}

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
        ++rows.back();
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
  Status need;  // of a tokenizer or a template: said behind what is wrong with the rows
  for (const RowSource& source : sources) {
    rows.push_back(0);
    for (const std::string& path : source.files) {
      DSJ_TRY(RowFile file,
              RowFile::open(files, path, source.names, unpack_options(options_), options_.aim));
      file.turns = options_.chat_template != "auto";
      DSJ_TRY_STATUS(check(files, file, bad, need));
      rows.back() += file.rows();
      firsts_.push_back(all_rows_);
      all_rows_ += file.rows();
      files_.push_back(std::move(file));
    }
  }
  DSJ_TRY_STATUS(bad.status(all_rows_, path_));
  DSJ_TRY_STATUS(need);
  DSJ_TRY_STATUS(find_pairs());
  return select(rows);
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

Status Dataset::check_split(int64_t held_out) const {
  if (!unpaired_ || held_out == 0) return {};
  return bad_input(
      "objective kto trains each answer of a pair as a row, and a split of those rows would part "
      "the pairs",
      path_, "write evalDataPath, or rows with label instead of chosen and rejected");
}

void Dataset::rotate_answers(int64_t block, int64_t held_out) {
  DSJ_CHECK(block >= 0 && held_out >= 0 && held_out <= rows());
  rotated_ = block;
  held_out_ = held_out;
}

int64_t Dataset::answer_beside(int64_t row) const {
  const bool held = row < held_out_;
  const int64_t first = held ? 0 : held_out_, end = held ? held_out_ : rows();
  const int64_t begin = row - (row - first) % rotated_;
  return row == begin ? std::min(begin + rotated_, end) - 1 : row - 1;
}

Dataset::Half Dataset::half_of(int64_t row) const {
  if (!unpaired_) return {row, false};
  constexpr int64_t kTogether = 1000;  // datasets.map's batch, in which TRL parts the pairs
  const int64_t first = row / (2 * kTogether) * kTogether;
  const int64_t pairs = std::min(kTogether, file_rows() - first), place = row - 2 * first;
  return {first + place % pairs, place >= pairs};
}

std::pair<const RowFile*, int64_t> Dataset::place_of(int64_t row) const {
  DSJ_CHECK(row >= 0 && row < rows(), "row %lld", static_cast<long long>(row));
  const int64_t chosen = half_of(row).row;
  const int64_t number = order_.empty() ? chosen : order_[static_cast<size_t>(chosen)];
  const auto file = std::ranges::upper_bound(firsts_, number) - 1;
  return {&files_[static_cast<size_t>(file - firsts_.begin())], number - *file};
}

RowKind Dataset::kind() const {
  return files_.front().found.kind;
}

int64_t Dataset::bytes_of(int64_t row) const {
  const auto [file, number] = place_of(row);
  return file->found.places[static_cast<size_t>(number)].length;
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

int64_t Dataset::tokens_at_most(int64_t row) const {
  // A token is at least a byte of text: of the row, or of what its template puts around it. A row of
  // ids has two numbers and two commas for each.
  constexpr int64_t kTemplate = 256;
  const bool ids = place_of(row).first->found.kind == RowKind::Tokens;
  return ids ? bytes_of(row) / 4 : bytes_of(row) + kTemplate;
}

bool Dataset::tokenizes_to_check() const {
  return tokenizer_ != nullptr && tokenizer_->vocab_size() > options_.vocab_size;
}

std::string Dataset::answer_end_note() const {
  const auto end = answer_end();
  if (!end || !*end || std::ranges::count(tokenizer_->stop_ids(), **end) > 0) return {};
  const auto name = [&](std::optional<int32_t> id) {
    return id ? tokenizer_->id_to_token(*id).value_or("") : std::string("not set");
  };
  return "the answers in " + path_ + " end with " + name(**end) +
         ", but the model's eos token is " + name(tokenizer_->eos_id()) +
         ": what is exported will not stop at the end of an answer; --eos_token '" + name(**end) +
         "' makes it the eos token of the exported model";
}

std::vector<std::string> Dataset::notes() const {
  std::vector<std::string> notes;
  const bool chats =
      std::ranges::any_of(files_, [](const RowFile& file) { return is_chat(file.found.kind); });
  if (!chats && options_.chat_template != "auto")
    notes.push_back("its rows have no messages: chatTemplate " +
                    options_.chat_template.substr(0, 60) + " is not used");
  std::vector<UnreadField> unread, renamed;
  Counts counts(unread), shapes(renamed);
  for (const RowFile& file : files_) {
    for (const UnreadField& one : file.found.unread) counts.add(one.name, one.rows);
    if (file.found.kind != RowKind::Alpaca || options_.aim == RowAim::Pairs || file.pairs) continue;
    for (const UnreadField& one : file.found.shapes)
      if (one.name != kAlpacaShape) shapes.add(one.name, one.rows);
  }
  for (const UnreadField& one : renamed)
    notes.push_back("its rows of " + one.name + " (" + std::to_string(one.rows) +
                    ") are read as alpaca rows, with Stanford's prompt");
  if (!unread.empty()) notes.push_back(unread_note(unread));
  return notes;
}

std::string Dataset::shapes() const {
  std::vector<UnreadField> shapes;
  Counts counts(shapes);
  for (const RowFile& file : files_)
    for (const UnreadField& one : file.found.shapes) counts.add(one.name, one.rows);
  std::string text;
  for (const UnreadField& one : shapes)
    text += (text.empty() ? "" : "; ") + std::to_string(one.rows) +
            (one.rows == 1 ? " row of shape " : " rows of shape ") + one.name;
  return text;
}

Status Dataset::check(Files& files, RowFile& file, BadRows& bad, Status& need) {
  // The check of a file that is tokenized for it depends on the whole tokenizer.
  if (options_.cache_directory.empty() || file.bytes().size() < options_.cached_bytes_min ||
      tokenizes_to_check()) {
    DSJ_TRY([[maybe_unused]] const bool good, check_all(files, file, bad, need));
    return {};
  }
  RowCache cache(files, {.directory = options_.cache_directory,
                         .now = static_cast<int64_t>(std::time(nullptr)),
                         .process = getpid()});
  std::string form = file.form();
  if (options_.learning.inputs) form += " inputs";  // then nothing need be known of the answers
  DSJ_TRY(const std::string key, file.key(form + " " + std::to_string(options_.vocab_size)));
  if (auto known = cache.find(key, file.bytes().size())) {
    DSJ_TRY_STATUS(check_need(files, file, known->kind));
    const int64_t by = is_chat(known->kind) ? chat_template_.key() : 0;
    if (by == known->chat_template) {
      file.found = std::move(*known);
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
  if (row.kind == RowKind::Chat) {  // the template may have no form for the turns
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
  // A turn's field that the chat template speaks of.
  const auto template_reads = [&](const ShapedRow& row, const std::string& name) {
    const size_t dot = name.rfind("[].");
    return is_chat(row.kind) && name.find(' ') == std::string::npos && dot != std::string::npos &&
           chat_template_.key() != 0 && chat_template_.mentions(name.substr(dot + 3));
  };
  const auto check_one = [&](const ShapedRow& row) -> std::optional<RowProblem> {
    const auto [known, is_new] = needs.try_emplace(row.kind);
    if (is_new) known->second = check_need(files, file, row.kind);
    if (auto problem = check_row(row, options_.vocab_size)) return problem;
    for (const ShapedRow& rejected : row.rejected)
      if (auto problem = check_row(rejected, options_.vocab_size))
        return RowProblem{rejected.own_name(problem->field), problem->what};
    return known->second ? problem_of(row) : std::nullopt;
  };
  DSJ_TRY_STATUS(file.scan([&](const RowPlace& place, std::string_view text) {
    file.found.places.push_back({place.offset, place.length});
    const auto row = file.shaped(text);
    const auto problem = row ? check_one(*row) : row.error();
    if (problem) {
      good = false;
      bad.add(file.path(), place, row ? file.own_name(*row, problem->field) : problem->field,
              problem->what);
      return;
    }
    kinds.add(place, *row);
    shapes.add(row->shape);
    for (const std::string& name : unread_fields(row->row, row->kind))
      if (!template_reads(*row, name)) unread.add(name);
  }));
  if (file.found.places.empty()) return bad_input("has no rows", file.path());
  good = kinds.tell_others(file.path(), bad) && good;
  file.found.kind = kinds.most().value_or(Kinds::Form{RowKind::Alpaca, false}).first;
  file.found.chat_template = is_chat(file.found.kind) ? chat_template_.key() : 0;
  const Status& its = needs[file.found.kind];
  if (!its && need) need = its;
  return good && its;
}

Result<Sample> Dataset::at(int64_t row) const {
  DSJ_TRY(Cut cut, read(row, options_.max_seq_length));
  truncated_ += cut.truncated;
  without_target_ +=
      std::ranges::all_of(cut.sample.labels, [](int32_t label) { return label == kIgnoredLabel; });
  return std::move(cut.sample);
}

Result<Sample> Dataset::whole(int64_t row) const {
  DSJ_TRY(Cut cut, read(row, kAnyLength));
  return std::move(cut.sample);
}

Result<ShapedRow> Dataset::shaped(int64_t row) const {
  const auto [file, number] = place_of(row);
  DSJ_TRY(const std::string raw, file->raw(number));
  // Rows were checked when the file was opened. What is wrong now has changed since.
  const auto changed = [&](const std::string& what) {
    return fail(ErrorKind::Environment, "the file was changed while it was in use: " + what,
                file->path() + ": row " + std::to_string(number));
  };
  auto shaped = file->shaped(raw);
  if (!shaped) return changed(shaped.error().what);
  if (shaped->kind != file->found.kind || (file->pairs && shaped->rejected.empty()))
    return changed("it is of shape " + shaped->shape);
  if (const auto problem = check_row(*shaped, options_.vocab_size))
    return changed(problem->field + " " + problem->what);
  if (!file->pairs) return std::move(*shaped);
  const bool rejected = half_of(row).rejected;
  ShapedRow half = std::move(rejected ? shaped->rejected.front() : *shaped);
  half.good = !rejected;
  half.rejected.clear();
  return half;
}

Result<Cut> Dataset::read_judged(int64_t row, const ShapedRow& shaped,
                                 int64_t max_seq_length) const {
  const PairLengths lengths{.max_prompt_length = options_.max_prompt_length,
                            .max_length = max_seq_length,
                            .keeps_end = options_.keeps_end};
  DSJ_TRY(const JudgedIds own, judged_ids(shaped, *tokenizer_, chat_template_));
  Cut cut = judged_sample(own.prompt, own.answer, *shaped.good, lengths);
  if (cut.sample.input_ids.empty()) return bad_input("an answer and its prompt have no tokens");
  if (rotated_ == 0) return cut;
  DSJ_TRY(const ShapedRow before, this->shaped(answer_beside(row)));
  DSJ_TRY(const JudgedIds other, judged_ids(before, *tokenizer_, chat_template_));
  Cut beside = judged_sample(own.prompt, other.answer, *shaped.good, lengths);
  if (beside.sample.input_ids.empty())
    return bad_input("a prompt and another row's answer have no tokens");
  cut.sample.beside.push_back(std::move(beside.sample));
  return cut;
}

Result<Cut> Dataset::read(int64_t row, int64_t max_seq_length) const {
  const auto [file, number] = place_of(row);
  const std::string where = file->path() + ": row " + std::to_string(number);
  DSJ_TRY(const ShapedRow shaped, this->shaped(row));
  const bool pair = !shaped.rejected.empty();
  auto cut = shaped.good ? read_judged(row, shaped, max_seq_length)
             : pair      ? pair_sample(shaped, *tokenizer_, chat_template_,
                                       {.max_prompt_length = options_.max_prompt_length,
                                        .max_length = max_seq_length,
                                        .keeps_end = options_.keeps_end,
                                        .prompt_learned = options_.prompt_learned})
                         : row_sample(shaped, tokenizer_, chat_template_, options_.learning,
                                 options_.keeps_end ? kAnyLength : max_seq_length);
  if (!cut && cut.error().where.empty()) return bad_input(cut.error().message, where);
  if (!cut) return std::unexpected(cut.error());
  if (options_.keeps_end && !pair && !shaped.good) keep_end(*cut, max_seq_length);
  if (tokenizer_ != nullptr && shaped.kind != RowKind::Tokens)
    if (const auto problem = outside_vocabulary(cut->sample, *tokenizer_, options_.vocab_size))
      return bad_input(problem->what, where);
  return cut;
}

Result<std::optional<int32_t>> Dataset::answer_end() const {
  constexpr int64_t kRowsAsked = 16;
  for (int64_t row = 0; row < std::min(kRowsAsked, rows()); ++row) {
    if (!is_chat(place_of(row).first->found.kind)) continue;
    DSJ_TRY(const Cut cut, read(row, options_.max_seq_length));
    const std::vector<int32_t>& labels = cut.sample.labels;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool last = i + 1 == labels.size();
      const bool ends = last ? !cut.truncated : labels[i + 1] == kIgnoredLabel;
      if (labels[i] != kIgnoredLabel && ends) return labels[i];
    }
  }
  return std::nullopt;
}

}  // namespace dsj::data
