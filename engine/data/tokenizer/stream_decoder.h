// A text as its ids arrive, for generation. What push() and finish() return, put together, equals
// Tokenizer::decode of all ids. Text is held back while a later id may still change it (a
// character's bytes are incomplete, or a run of byte tokens goes on).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"

namespace dsj::data {

/// One thread. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// The text that `id` makes certain; may be empty. Its work grows with the ids held back.
  std::string push(int32_t id);
  /// The text that was held back. The decoder starts anew afterwards.
  std::string finish();

 private:
  std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;  ///< the last certain ids, as context, then the ids held back
  std::size_t certain_ = 0;
};

}  // namespace dsj::data
