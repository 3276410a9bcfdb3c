#include "engine/data/tokenizer/stream_decoder.h"

#include "engine/data/tokenizer/token_decoder.h"

namespace dsj::data {

std::string StreamDecoder::push(int32_t id) {
  ids_.push_back(id);
  return take(false);
}

std::string StreamDecoder::finish() {
  std::string rest = take(true);
  ids_.clear();
  certain_ = 0;
  return rest;
}

std::string StreamDecoder::take(bool all) {
  if (!all && !ids_.empty()) {
    const auto token = tokenizer_.id_to_token(ids_.back());
    if (!token || fallback_byte(*token) >= 0) return "";  // the run may continue
  }
  const std::string before = tokenizer_.decode(std::span(ids_).first(certain_), skip_special_);
  const std::string now = tokenizer_.decode(ids_, skip_special_);
  const bool open = now.ends_with("\uFFFD");
  // While there is no text, a decoder that strips the first token still treats this one as first.
  if (!all && (open || now.size() <= before.size())) return "";
  if (!now.starts_with(before)) return "";
  std::string fresh = now.substr(before.size());
  if (all) return fresh;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(certain_));
  certain_ = ids_.size();
  return fresh;
}

}  // namespace dsj::data
