// Text to token ids and back, equal to Hugging Face's `tokenizers` for BPE: byte-level (GPT-2,
// Qwen2, Llama 3), and from characters (Llama 2, Gemma: byte fallback, Metaspace).
//
// It reads a model directory: tokenizer.json (docs/models.md lists the steps), else vocab.json
// + merges.txt (GPT-2, Qwen2), else qwen.tiktoken, else tokenizer.model (a SentencePiece BPE
// model, as Llama's tokenizer reads it). Special tokens come from tokenizer_config.json,
// special_tokens_map.json, generation_config.json and config.json. Anything else (Unigram,
// WordPiece ...) is refused by name, so that text is never tokenized differently than the file
// says.
//
// Used by the data set (dataset.h) and by generate. Left out: chat templates, and the padding
// and truncation settings in tokenizer.json (transformers ignores them too, and sets its own
// per call). Results are equal for characters assigned in Unicode 16.
//
// Threads: every method except load() and set_eos() may run on several threads. The piece cache
// serves one caller at a time; a concurrent caller works without it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"

namespace dsj::data {

struct TokenizerSpec;

struct EncodeOptions {
  /// False: a special token's text is encoded as plain text (split_special_tokens).
  bool parse_special = true;
  /// False: do not add the post-processor's tokens around the text (Llama 3's <|begin_of_text|>).
  bool add_special_tokens = true;
  /// At most this many ids; the rest is cut off at the right. The post-processor's tokens count
  /// and are kept. Text beyond these ids is not tokenized.
  std::optional<int64_t> max_length = std::nullopt;
};

/// The ids of a text, and the positions of marks (byte offsets in the text) among them.
struct MarkedIds {
  std::vector<int32_t> ids;
  /// [mark]: the number of ids that begin before the mark, at most ids.size(). Ids from this one on
  /// begin at the mark or after it.
  std::vector<std::size_t> firsts;
  /// [mark]: whether the last id before it extends over the mark.
  std::vector<bool> crossed;
};

class Tokenizer {
 public:
  /// Errors: BadInput if the directory has no known file, a file is broken, or something in it
  /// is not supported. `where` names the file and the field.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& model_dir);
  static Result<std::unique_ptr<Tokenizer>> load(Files& files, const std::string& model_dir);
  /// Makes another token the eos, for rows and generation; the old one still ends generation.
  /// Call it before other threads use the tokenizer. Errors: BadInput if `text` is not a token.
  Status set_eos(const std::string& text);
  /// Builds a tokenizer from the content of its files. For load() and tests.
  static Result<std::unique_ptr<Tokenizer>> build(TokenizerSpec spec);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Errors: BadInput if the text is not UTF-8 (with the offset of the first bad byte).
  Result<std::vector<int32_t>> encode(std::string_view text, EncodeOptions options = {}) const;
  /// The same ids, and the positions of `marks`: byte offsets into the text in ascending order,
  /// each at the start of a character or at the end.
  Result<MarkedIds> encode(std::string_view text, std::span<const std::size_t> marks,
                           EncodeOptions options) const;

  /// Bytes that are not UTF-8 become U+FFFD; ids without a token are left out, and with
  /// `skip_special` special tokens too. Spaces are not cleaned up.
  std::string decode(std::span<const int32_t> ids, bool skip_special) const;

  /// The highest id + 1. A model's embedding must have at least as many rows.
  int64_t vocab_size() const;
  std::optional<int32_t> eos_id() const;
  std::optional<int32_t> bos_id() const;
  std::optional<int32_t> pad_id() const;
  /// The ids that end generation: eos_id and all of generation_config.json's eos_token_id.
  const std::vector<int32_t>& stop_ids() const;
  /// Remarks for the user on how the files were read, a sentence each.
  const std::vector<std::string>& notes() const;
  /// Path of the file with the vocabulary.
  const std::string& file() const;

  /// `token`: its text as in the file (byte-level tokens in GPT-2's alphabet: "Ġthe").
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<Parts> parts);
  class Encoding;
  std::unique_ptr<Parts> parts_;
};

}  // namespace dsj::data
