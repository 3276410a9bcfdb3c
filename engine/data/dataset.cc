#include "engine/data/dataset.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "engine/data/files/counts.h"
#include "engine/data/rows.h"

namespace dsj::data {
namespace {

constexpr int64_t kAnyLength = int64_t{1} << 60;

/// Cuts the beginning of a row that is too long.
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
  std::string text = "these fields of its rows are not read: ";
  for (size_t i = 0; i < std::min(kListed, unread.size()); ++i) {
    text += (i == 0 ? "" : ", ") + unread[i].name + " (" + std::to_string(unread[i].rows) +
            (unread[i].rows == 1 ? " row)" : " rows)");
  }
  if (unread.size() > kListed) text += " and " + std::to_string(unread.size() - kListed) + " more";
  return text;
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

Status Dataset::check_split(int64_t held_out) const {
  if (!unpaired_ || held_out == 0) return {};
  return bad_input(
      "objective kto trains each answer of a pair as a row, and a split of those rows would "
      "separate the pairs",
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
  constexpr int64_t kTogether = 1000;  // TRL splits the pairs per batch of datasets.map
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

int64_t Dataset::tokens_at_most(int64_t row) const {
  // A token has at least one byte of text: of the row, or of the template's text around it. A
  // row of ids has a number and a comma per token.
  constexpr int64_t kTemplate = 256;
  const bool ids = place_of(row).first->found.kind == RowKind::Tokens;
  return ids ? bytes_of(row) / 2 : bytes_of(row) + kTemplate;
}

std::string Dataset::answer_end_note() const {
  const auto end = answer_end();
  if (!end || !*end || std::ranges::count(tokenizer_->stop_ids(), **end) > 0) return {};
  const auto name = [&](std::optional<int32_t> id) {
    return id ? tokenizer_->id_to_token(*id).value_or("") : std::string("not set");
  };
  return "the answers in " + path_ + " end with " + name(**end) +
         ", but the model's eos token is " + name(tokenizer_->eos_id()) +
         ": the exported model will not stop at the end of an answer; --eos_token '" + name(**end) +
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
  std::vector<UnreadField> left_out;
  Counts reasons(left_out);
  for (const RowFile& file : files_)
    for (const UnreadField& one : file.found.left_out) reasons.add(one.name, one.rows);
  for (const UnreadField& one : left_out)
    notes.push_back("left out: " + std::to_string(one.rows) +
                    (one.rows == 1 ? " row: " : " rows: ") + one.name);
  if (left_out_ > 0)
    notes.push_back(std::to_string(left_out_) + " of its pairs have a row of more than " +
                    std::to_string(options_.max_seq_length) +
                    " tokens (maxSeqLength) and are left out");
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
  // Rows were valid when the file was opened, so an error means that the file changed.
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
                                        .prompt_learned = options_.prompt_learned,
                                        .scored = options_.scored})
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

int32_t Dataset::end_of(std::span<const int32_t> answer) const {
  for (auto id = answer.rbegin(); id != answer.rend() && tokenizer_ != nullptr; ++id) {
    const std::string text = tokenizer_->decode(std::span(&*id, 1), /*skip_special=*/false);
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) return *id;
  }
  return answer.back();
}

Result<std::optional<int32_t>> Dataset::answer_end() const {
  constexpr int64_t kRowsAsked = 16;
  for (int64_t row = 0; row < std::min(kRowsAsked, rows()); ++row) {
    if (!is_chat(place_of(row).first->found.kind)) continue;
    DSJ_TRY(const Cut cut, read(row, options_.max_seq_length));
    const std::vector<int32_t>& labels = cut.sample.labels;
    size_t first = 0;
    for (size_t i = 0; i < labels.size(); ++i) {
      const bool last = i + 1 == labels.size();
      const bool ends = last ? !cut.truncated : labels[i + 1] == kIgnoredLabel;
      if (labels[i] == kIgnoredLabel)
        first = i + 1;
      else if (ends)
        return end_of(std::span(labels).subspan(first, i + 1 - first));
    }
  }
  return std::nullopt;
}

}  // namespace dsj::data
