// Training rows by number: token ids and labels.
//
// Files are a JSON array, JSONL, {"samples": [...]} or CSV, also compressed by gzip or zstd, or
// Parquet or Arrow IPC. There may be several (row_sources.h), and a selection of their rows
// (row_selection.h). All rows of a file have one kind (row_shape.h lists the fields that
// determine it):
//   alpaca           {"instruction": text, "input": text (may be missing), "output": text}.
//                    Stanford's prompt (prompt.h), the output and the eos token are tokenized
//                    together. The prompt's labels are -100: the loss is on the response only.
//                    As in LLaMA-Factory "system" replaces the prompt's first sentence; "history"
//                    is earlier turns, learned. A named chatTemplate renders all of it as turns.
//   chat             {"messages": [{"role", "content"}...]}, or ShareGPT's {"conversations":
//                    [{"from", "value"}...]}, rendered by a chat template (chat.h); a "system"
//                    field is the first turn. The loss is on the assistant's turns only, except
//                    those with "weight": 0 or "train": false.
//   prompt           {"prompt", "completion"}, texts or lists of turns. The completion is learned.
//   text             {"text"}: every token is a target.
//   segments         {"segments": [{"text", "label"}...]}: segments with label true are learned.
//   pre-tokenized    {"input_ids": [...], "labels": [...]}, with "attention_mask" only if all ones.
// For pairs (DatasetOptions::aim) a row has a prompt, a chosen and a rejected answer, and
// becomes two rows in one sample (pair_shape.h, Sample::second). For marked answers a row has a
// label, a prompt and an answer (row_mark.h), and a pair becomes two such rows. As in TRL, the
// rows of 1,000 pairs with chosen answers precede those with rejected ones. Fields that belong
// to another objective, or to what is not built, are refused by name; other unread fields are
// counted (row_fields.h, notes()). Empty texts are left out, and so are bad rows with
// skips_bad_rows. Rows that are left out have no number. Rows longer than max_seq_length are
// cut at the right, as in Hugging Face, or at the left. labels[i] belongs to input_ids[i]; the
// model shifts.
//
// Opening reads the whole file and checks every row, unless a cache knows that these bytes were
// checked (row_cache.h). at() reads and tokenizes a row each time, so memory is a few bytes per
// row. Used by the loader (loader.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
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
  /// For pairs and marked answers: a longer prompt keeps its last tokens; 0 means no limit.
  int64_t max_prompt_length = 0;
  bool prompt_learned = false;  ///< for pairs: the chosen row's prompt, too (orpo)
  /// For pairs: rows are scored (Sample::margin). A pair with a row longer than max_seq_length
  /// is left out, as in TRL; opening then tokenizes every row on `threads` threads.
  bool scored = false;
  int threads = 1;
  int64_t max_seq_length = 2048;
  int64_t vocab_size = 0;  ///< the model's; every id must be below it
  int64_t bad_rows_listed_max = 20;
  std::string chat_template = "auto";  ///< training.chatTemplate, for chat rows
  std::string chat_date;               ///< training.chatDate; empty: today
  /// training.defaultSystem: the system text of alpaca and chat rows that have none.
  std::string default_system;
  Learning learning;                      ///< trainOnInputs, maskHistory, trainOnEos
  std::string dataset;                    ///< training.dataset (row_sources.h); may be empty
  nlohmann::json columns;                 ///< training.datasetColumns (row_names.h), or null
  RowSelection selection;                 ///< which rows are used, and their order
  bool keeps_end = false;                 ///< training.truncationSide is left
  bool skips_bad_rows = false;            ///< training.skipBadRows: bad rows are left out
  std::string unpack_directory = "/tmp";  ///< row_bytes.h
  std::string cache_directory;            ///< row_cache.h; empty means no cache
  bool cache_writes = true;               ///< false if another process of this machine stores it
  int64_t cached_bytes_min = 1 << 20;     ///< smaller files are checked without the cache
};

/// Whether a row is cut to max_seq_length.
enum class RowCut { AtMaxLength, Never };

/// The options of evaluation rows, from those of the training rows. `dataset`: as
/// DatasetOptions::dataset. The first `max_samples` rows of each data set are read. 0 means
/// all; but for named data sets, as many as of the training rows (LLaMA-Factory's max_samples).
DatasetOptions evaluation_options(DatasetOptions options, std::string dataset, int64_t max_samples);

struct Cut;        // rows.h
struct ShapedRow;  // shaped_row.h
class BadRows;     // dataset_open.cc

class Dataset {
 public:
  /// `tokenizer` must outlive the data set; it may be null for pre-tokenized rows. Errors:
  /// BadInput if this is not a data file or rows are bad. The message lists bad rows, one per
  /// line ("row 17, line 19: output: is null, expected text"), counted from 0.
  static Result<std::unique_ptr<Dataset>> open(const std::string& path, const Tokenizer* tokenizer,
                                               DatasetOptions options);
  static Result<std::unique_ptr<Dataset>> open(Files& files, const std::string& path,
                                               const Tokenizer* tokenizer, DatasetOptions options);
  /// Counts the rows without checking them, for plans. With skips_bad_rows this includes rows
  /// that are bad only for a tokenizer or a chat template.
  static Result<int64_t> count_rows(Files& files, const std::string& path,
                                    const DatasetOptions& options = {});

  int64_t rows() const { return file_rows() * (unpaired_ ? 2 : 1); }
  /// Whether the files have pairs and each answer of a pair is a row.
  bool is_unpaired() const { return unpaired_; }
  /// Errors: BadInput if holding out the first `held_out` rows would separate pairs.
  Status check_split(int64_t held_out) const;
  /// From now on adds another row to each marked answer (Sample::beside), as TRL's KTOTrainer:
  /// in each block of `block` rows, the prompt with the answer of the previous row; the first
  /// row gets the last answer. The first `held_out` rows have blocks of their own. `block` 0
  /// switches this off.
  void rotate_answers(int64_t block, int64_t held_out);
  /// The kind of the first file's rows.
  RowKind kind() const;
  /// For messages: "200 rows of shape alpaca (instruction, output)".
  std::string shapes() const;
  /// The template of chat rows.
  const ChatTemplate& chat_template() const { return chat_template_; }
  /// Remarks for the user on the rows, a sentence each: an unused template, fields that are
  /// read under another name, fields that are not read.
  std::vector<std::string> notes() const;
  /// Says that chat answers end with a token that does not end generation, and what to do;
  /// empty if they end with the eos token.
  std::string answer_end_note() const;

  /// Row `row`, 0 <= row < rows(). Errors: the file changed, or can no longer be read. Several
  /// threads may call it.
  Result<Sample> at(int64_t row) const;

  /// The token that ends the answers of chat rows, apart from white space after it (the template's
  /// line end, which TRL's prompt and completion rows learn), according to the first rows. nullopt for
  /// other kinds, or if no answer ends within its row. Errors: as at().
  Result<std::optional<int32_t>> answer_end() const;

  /// The same row before it is cut to max_seq_length().
  Result<Sample> whole(int64_t row) const;
  /// at(), or whole().
  Result<Sample> read_row(int64_t row, RowCut cut) const {
    return cut == RowCut::Never ? whole(row) : at(row);
  }
  int64_t max_seq_length() const { return options_.max_seq_length; }
  int64_t bytes_of(int64_t row) const;
  /// An upper bound of whole()'s tokens, computed from the row's bytes without reading it.
  int64_t tokens_at_most(int64_t row) const;

  /// How many rows at() has cut so far, and how many it returned without a label. A row that is
  /// read twice counts twice.
  int64_t truncated_rows() const { return truncated_; }
  int64_t rows_without_target() const { return without_target_; }

 private:
  Dataset(std::string path, const Tokenizer* tokenizer, DatasetOptions options);
  Status open_files(Files& files);
  /// The last of an answer's targets that is not white space.
  int32_t end_of(std::span<const int32_t> answer) const;
  /// Applies the selection. `rows`: the size of each data set.
  Status select(const std::vector<int64_t>& rows);
  /// Leaves out pairs with a row that is too long. Errors: BadInput if none remains.
  Status leave_out_long();
  /// The number of selected rows, before pairs become two rows each.
  int64_t file_rows() const { return order_.empty() ? all_rows_ : std::ssize(order_); }
  struct Half {
    int64_t row;    ///< index below file_rows()
    bool rejected;  ///< the rejected half of a pair
  };
  Half half_of(int64_t row) const;
  /// The row whose answer is combined with the prompt of `row` (rotate_answers).
  int64_t answer_beside(int64_t row) const;
  /// Whether the files have pairs; all of them must agree.
  Status find_pairs();
  /// The file of a row, and the row's number in it.
  std::pair<const RowFile*, int64_t> place_of(int64_t row) const;
  /// Reads a row again and shapes it. Errors: it changed since it was checked.
  Result<ShapedRow> shaped(int64_t row) const;
  Result<Cut> read_judged(int64_t row, const ShapedRow& shaped, int64_t max_seq_length) const;

  /// Fills file.found from the cache or by check_all().
  Status check(Files& files, RowFile& file, BadRows& bad, Status& need);
  /// Reads every row. False if some are bad, or if `need` was set to what the rows lack.
  Result<bool> check_all(Files& files, RowFile& file, BadRows& bad, Status& need);
  /// Checks a row whose fields are valid.
  std::optional<RowProblem> problem_of(const ShapedRow& row) const;
  /// Whether texts may yield ids that the model lacks. The check then tokenizes every row.
  bool tokenizes_to_check() const;
  /// Checks the needs of a kind of rows: a tokenizer with an eos token, or a chat template.
  Status check_need(Files& files, const RowFile& file, RowKind kind);
  Status check_tokenizer(const RowFile& file, RowKind kind) const;
  Status check_chat_template(Files& files, const RowFile& file);
  Result<Cut> read(int64_t row, int64_t max_seq_length) const;

  std::string path_;
  const Tokenizer* tokenizer_;
  DatasetOptions options_;
  ChatTemplate chat_template_;
  std::vector<RowFile> files_;
  std::vector<int64_t> firsts_;  ///< index of each file's first row among all files
  int64_t all_rows_ = 0;
  std::vector<int64_t> order_;  ///< row → index among all files; empty for the identity
  bool unpaired_ = false;
  int64_t left_out_ = 0;
  int64_t rotated_ = 0, held_out_ = 0;  ///< arguments of rotate_answers()
  mutable std::atomic<int64_t> truncated_{0}, without_target_{0};
};

}  // namespace dsj::data
