// Training rows by number: token ids and labels.
//
// Files: a JSON array, JSONL, {"samples": [...]} or CSV, also as gzip or zstd, Parquet or Arrow IPC, one or several
// (row_sources.h), of which some rows may be chosen (row_selection.h). All rows of a file are of one
// kind (row_shape.h says which fields show which):
//   alpaca           {"instruction": text, "input": text (may be missing), "output": text}.
//                    Stanford's prompt (prompt.h), the output and the eos token are tokenized
//                    together. The prompt's labels are -100: the loss is on the response only.
//                    As in LLaMA-Factory "system" replaces the prompt's first sentence; "history"
//                    are turns before, learned. A chatTemplate that is named renders them as turns.
//   chat             {"messages": [{"role", "content"}...]}, or ShareGPT's {"conversations":
//                    [{"from", "value"}...]}, rendered by a chat template (chat.h); "system" beside
//                    them is a first turn. The loss is on the assistant's turns only, without those
//                    of "weight": 0 or "train": false.
//   prompt           {"prompt", "completion"}, texts or lists of turns. The completion is learned.
//   text             {"text"}: every token is a target.
//   segments         {"segments": [{"text", "label"}...]}: those with label true are learned.
//   pre-tokenized    {"input_ids": [...], "labels": [...]}, with "attention_mask" only if all ones.
// Read for pairs (DatasetOptions::aim) a row has a prompt and two answers, chosen and rejected, and
// becomes two rows in one sample (pair_shape.h, Sample::second). Read for marked answers it has a label
// beside a prompt and an answer (row_mark.h); pairs become two such rows each, as in TRL: of 1,000 pairs
// first those with the chosen answers, then those with the rejected ones.
// Fields that show another objective, or need what is not built, are refused by name; what else
// nothing reads is counted (row_fields.h, notes()). A text without any is left out, and so are bad rows
// if skips_bad_rows; what is left out has no number.
// Rows longer than max_seq_length are cut at the right, as in Hugging Face, or at the left. A label
// stands beside its own token; the model shifts.
//
// Opening reads the whole file and checks every row, or finds in a cache that these bytes were
// checked (row_cache.h). at() reads and tokenizes a row again, so memory is a few bytes per row.
// Used by the loader (loader.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/data/chat/chat.h"
#include "engine/data/chat/learning.h"
#include "engine/data/files/row_selection.h"
#include "engine/data/row_file.h"
#include "engine/data/shapes/sample.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace dsj::data {

struct DatasetOptions {
  RowAim aim = RowAim::Answers;
  /// Of pairs and marked answers: a longer prompt keeps its last tokens; 0: any.
  int64_t max_prompt_length = 0;
  bool prompt_learned = false;  ///< of pairs: the chosen row's prompt, too (orpo)
  /// Of pairs: their rows are scored (Sample::margin). Pairs of which a row is longer than max_seq_length are
  /// left out, as in TRL: opening then tokenizes every row, on `threads` threads.
  bool scored = false;
  int threads = 1;
  int64_t max_seq_length = 2048;
  int64_t vocab_size = 0;  ///< the model's; every id must be below it
  int64_t bad_rows_listed_max = 20;
  std::string chat_template = "auto";     ///< training.chatTemplate, for chat rows
  std::string chat_date;                  ///< training.chatDate; empty: today
  Learning learning;                      ///< trainOnInputs, maskHistory, trainOnEos
  std::string dataset;                    ///< training.dataset (row_sources.h); empty: none
  nlohmann::json columns;                 ///< training.datasetColumns (row_names.h), or null
  RowSelection selection;                 ///< of the rows that are there
  bool keeps_end = false;                 ///< training.truncationSide is left
  bool skips_bad_rows = false;            ///< training.skipBadRows: a row that is bad is left out
  std::string unpack_directory = "/tmp";  ///< row_bytes.h
  std::string cache_directory;            ///< row_cache.h; empty: nothing is kept
  bool cache_writes = true;               ///< false: another process of this machine stores it
  int64_t cached_bytes_min = 1 << 20;     ///< smaller files are checked at once
};

/// Whether a row keeps max_seq_length of its tokens, or all.
enum class RowCut { AtMaxLength, Never };

/// The options of evaluation rows beside those of the training rows. `dataset`: as
/// DatasetOptions::dataset. Of each data set the first `max_samples` rows are read; 0: all, or of named
/// data sets as many as of the training rows (LLaMA-Factory's max_samples).
DatasetOptions evaluation_options(DatasetOptions options, std::string dataset, int64_t max_samples);

struct Cut;        // rows.h
struct ShapedRow;  // shaped_row.h
class BadRows;     // dataset_open.cc

class Dataset {
 public:
  /// `tokenizer` must outlive the data set; it may be null for pre-tokenized rows. BadInput: this
  /// is not a data file, or rows are bad. The message lists them, one per line ("row 17, line 19:
  /// output: is null, expected text"), rows counted from 0.
  static Result<std::unique_ptr<Dataset>> open(const std::string& path, const Tokenizer* tokenizer,
                                               DatasetOptions options);
  static Result<std::unique_ptr<Dataset>> open(Files& files, const std::string& path,
                                               const Tokenizer* tokenizer, DatasetOptions options);
  /// The number of rows, without checking any: for plans. With skips_bad_rows those that a tokenizer or
  /// a chat template finds bad count, too.
  static Result<int64_t> count_rows(Files& files, const std::string& path,
                                    const DatasetOptions& options = {});

  int64_t rows() const { return file_rows() * (unpaired_ ? 2 : 1); }
  /// Whether the files have pairs, of which each answer is a row.
  bool is_unpaired() const { return unpaired_; }
  /// BadInput: the first `held_out` rows cannot be held out, because that would part pairs.
  Status check_split(int64_t held_out) const;
  /// From now on a marked answer has another row beside it (Sample::beside), as TRL's KTOTrainer: of each
  /// `block` rows in turn, the prompt with the answer of the row before, the first with that of the last.
  /// The first `held_out` rows have blocks of their own. 0: no longer.
  void rotate_answers(int64_t block, int64_t held_out);
  /// Of the rows of the first file.
  RowKind kind() const;
  /// "200 rows of shape alpaca (instruction, output)": for people.
  std::string shapes() const;
  /// The template of chat rows.
  const ChatTemplate& chat_template() const { return chat_template_; }
  /// What a user should know of the rows, a sentence each: a template that they do not use, fields that
  /// are read under another name, fields that nothing reads.
  std::vector<std::string> notes() const;
  /// Whether chat answers end with a token that does not end what the model generates, and what to do;
  /// empty: they do not.
  std::string answer_end_note() const;

  /// Row `row`, 0 <= row < rows(). Error: the file changed, or cannot be read any more. Several
  /// threads may call it.
  Result<Sample> at(int64_t row) const;

  /// The token that ends the answers of chat rows, as the first rows show it; nullopt: they are of
  /// another kind, or none of their answers ends within its row. Error: as at().
  Result<std::optional<int32_t>> answer_end() const;

  /// The same row before it is cut to max_seq_length().
  Result<Sample> whole(int64_t row) const;
  /// at(), or whole().
  Result<Sample> read_row(int64_t row, RowCut cut) const {
    return cut == RowCut::Never ? whole(row) : at(row);
  }
  int64_t max_seq_length() const { return options_.max_seq_length; }
  int64_t bytes_of(int64_t row) const;
  /// A bound of whole()'s tokens by the row's bytes, without reading it.
  int64_t tokens_at_most(int64_t row) const;

  /// How many rows at() has cut so far, and how many it returned without any label. A row that is
  /// asked for twice counts twice.
  int64_t truncated_rows() const { return truncated_; }
  int64_t rows_without_target() const { return without_target_; }

 private:
  Dataset(std::string path, const Tokenizer* tokenizer, DatasetOptions options);
  Status open_files(Files& files);
  /// Chooses among the rows that each data set has.
  Status select(const std::vector<int64_t>& rows);
  /// Leaves longer rows out. BadInput: none is left.
  Status leave_out_long();
  /// The rows that are chosen, before pairs become two.
  int64_t file_rows() const { return order_.empty() ? all_rows_ : std::ssize(order_); }
  struct Half {
    int64_t row;    ///< as file_rows() numbers them
    bool rejected;  ///< of a pair that became two
  };
  Half half_of(int64_t row) const;
  /// The row whose answer stands beside the prompt of `row`.
  int64_t answer_beside(int64_t row) const;
  /// Whether the files have pairs; all of them must agree.
  Status find_pairs();
  /// The file of a row, and the row's number in it.
  std::pair<const RowFile*, int64_t> place_of(int64_t row) const;
  /// A row as it was when it was checked.
  Result<ShapedRow> shaped(int64_t row) const;
  Result<Cut> read_judged(int64_t row, const ShapedRow& shaped, int64_t max_seq_length) const;

  /// Fills file.found, by a cache or by check_all().
  Status check(Files& files, RowFile& file, BadRows& bad, Status& need);
  /// Reads every row. False: some are bad, or `need` was set to what the rows lack.
  Result<bool> check_all(Files& files, RowFile& file, BadRows& bad, Status& need);
  /// Of a row whose fields are good.
  std::optional<RowProblem> problem_of(const ShapedRow& row) const;
  /// Whether texts can become ids that the model lacks: then every row is tokenized to check it.
  bool tokenizes_to_check() const;
  /// What rows of a kind need: a tokenizer that knows eos, or a chat template.
  Status check_need(Files& files, const RowFile& file, RowKind kind);
  Status check_tokenizer(const RowFile& file, RowKind kind) const;
  Status check_chat_template(Files& files, const RowFile& file);
  Result<Cut> read(int64_t row, int64_t max_seq_length) const;

  std::string path_;
  const Tokenizer* tokenizer_;
  DatasetOptions options_;
  ChatTemplate chat_template_;
  std::vector<RowFile> files_;
  std::vector<int64_t> firsts_;  ///< of each file, its first row in the numbers through all files
  int64_t all_rows_ = 0;
  std::vector<int64_t> order_;  ///< those numbers as rows are numbered; empty: the same
  bool unpaired_ = false;
  int64_t left_out_ = 0;
  int64_t rotated_ = 0, held_out_ = 0;  ///< of rotate_answers()
  mutable std::atomic<int64_t> truncated_{0}, without_target_{0};
};

}  // namespace dsj::data
