// Decodes ids to text while they arrive, for generation. The results of push() and finish()
// together equal Tokenizer::decode of all ids. Text is held back while a later id may still
// change it: a character's bytes are incomplete, or a run of byte tokens may continue.
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

  /// Returns the text that is final after `id`, maybe none. Its work grows with the ids held back.
  std::string push(int32_t id);
  /// Returns the text that was held back, and resets the decoder.
  std::string finish();

 private:
  std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;  ///< the last final ids, as context, then the ids held back
  std::size_t certain_ = 0;
};

}  // namespace dsj::data
