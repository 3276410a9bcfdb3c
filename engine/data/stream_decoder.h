// A text as its ids arrive, for generation: what push() and finish() return, put together, is what
// Tokenizer::decode makes of all ids at once. Text is held back while a later id may still change
// it (a character's bytes are not complete, a run of byte tokens goes on).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/tokenizer.h"

namespace dsj::data {

/// For one thread. The tokenizer must outlive it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  /// The text that `id` makes certain; may be empty. Work: the ids since the text was last certain.
  std::string push(int32_t id);
  /// What was held back. The decoder starts anew afterwards.
  std::string finish();

 private:
  std::string take(bool all);

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t>
      ids_;  ///< the last ids that are certain, for their neighbours, then the rest
  std::size_t certain_ = 0;
};

}  // namespace dsj::data
