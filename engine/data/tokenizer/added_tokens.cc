#include "engine/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "engine/data/text/unicode.h"

namespace dsj::data {
namespace {

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(code_point_before(text, begin).value)) ||
         (end < text.size() && is_word(code_point_at(text, end).value));
}

std::size_t space_begin(std::string_view text, std::size_t end) {
  while (end > 0) {
    const CodePoint c = code_point_before(text, end);
    if (!is_white_space(c.value)) break;
    end -= c.length;
  }
  return end;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint c = code_point_at(text, begin);
    if (!is_white_space(c.value)) break;
    begin += c.length;
  }
  return begin;
}

}  // namespace

AddedTokenSplitter::AddedTokenSplitter(std::vector<AddedToken> tokens,
                                       const std::vector<std::string>& patterns)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (patterns[i].empty()) continue;
    std::size_t node = 0;
    for (const char c : patterns[i]) {
      const auto [next, is_new] = nodes_[node].next.try_emplace(c, nodes_.size());
      node = next->second;
      if (is_new) nodes_.emplace_back();
    }
    if (!nodes_[node].token) nodes_[node].token = i;  // the first of equal patterns counts
    starts_[static_cast<uint8_t>(patterns[i][0])] = true;
  }
}

AddedTokenSplitter::Match AddedTokenSplitter::longest_at(std::string_view text,
                                                         std::size_t at) const {
  Match match;
  std::size_t node = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const auto next = nodes_[node].next.find(text[i]);
    if (next == nodes_[node].next.end()) break;
    node = next->second;
    if (nodes_[node].token) match = {i + 1 - at, &tokens_[*nodes_[node].token]};
  }
  return match;
}

void AddedTokenSplitter::split(std::string_view text, bool skip_special,
                               std::vector<Segment>& segments) const {
  std::size_t done = 0;  // everything before this offset is in a segment
  for (std::size_t at = 0; at < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = longest_at(text, at);
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + match.length;
    at = end;  // continue after a match, even if it does not count
    if (skip_special && match.token->special) continue;
    if (match.token->single_word && touches_word(text, begin, end)) continue;
    if (match.token->lstrip) begin = space_begin(text, begin);
    if (match.token->rstrip) end = space_end(text, end);
    begin = std::max(begin, done);
    if (begin > done) segments.push_back({text.substr(done, begin - done), -1});
    segments.push_back({text.substr(begin, std::max(begin, end) - begin), match.token->id});
    done = std::max(end, done);
  }
  if (done < text.size()) segments.push_back({text.substr(done), -1});
}

}  // namespace dsj::data
