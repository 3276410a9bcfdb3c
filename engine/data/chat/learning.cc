#include "engine/data/chat/learning.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "engine/data/chat/answers.h"

namespace dsj::data {
namespace {

/// Cuts `piece` at each `token`; `learned` says whether these tokens are learned.
void cut_at(const ChatPiece& piece, std::string_view token, bool learned,
            std::vector<ChatPiece>& out) {
  size_t done = 0;
  const auto put = [&](size_t begin, size_t end, bool is_learned) {
    if (begin < end) out.push_back({piece.text.substr(begin, end - begin), is_learned});
  };
  for (size_t at = piece.text.find(token); at != std::string::npos;
       at = piece.text.find(token, done)) {
    put(done, at, piece.learned);
    put(at, at + token.size(), learned);
    done = at + token.size();
  }
  put(done, piece.text.size(), piece.learned);
}

}  // namespace

RowAim aim_of(std::string_view objective) {
  if (objective == "dpo" || objective == "orpo" || objective == "reward") return RowAim::Pairs;
  if (objective == "kto") return RowAim::Marked;
  return objective == "pretrain" ? RowAim::Texts : RowAim::Answers;
}

Learning learning_of(bool train_on_inputs, bool mask_history, std::string_view train_on_eos) {
  const EndTokens ends = train_on_eos == "all"    ? EndTokens::All
                         : train_on_eos == "last" ? EndTokens::Last
                         : train_on_eos == "none" ? EndTokens::None
                                                  : EndTokens::Turn;
  return {.inputs = train_on_inputs, .last_answer = mask_history, .ends = ends};
}

void choose_turns(const Learning& learning, std::vector<Turn>& turns) {
  if (!learning.last_answer) return;
  const auto last = std::ranges::find(turns.rbegin(), turns.rend(), true, &Turn::learned);
  for (auto turn = last; turn != turns.rend(); ++turn) turn->learned = turn == last;
}

std::vector<ChatPiece> choose_pieces(const Learning& learning, std::vector<ChatPiece> pieces,
                                     const std::vector<std::string>& specials) {
  if (learning.inputs) {
    std::string whole;
    for (const ChatPiece& piece : pieces) whole += piece.text;
    return {{std::move(whole), true}};
  }
  if (learning.ends == EndTokens::Turn) return pieces;
  std::string token;
  for (const ChatPiece& piece : pieces) {
    if (piece.learned && token.empty()) token = end_token(piece.text, specials);
  }
  if (token.empty()) return pieces;
  std::vector<ChatPiece> chosen;
  for (const ChatPiece& piece : pieces)
    cut_at(piece, token, learning.ends == EndTokens::All, chosen);
  if (learning.ends != EndTokens::Last) return chosen;
  const auto last = std::ranges::find(chosen.rbegin(), chosen.rend(), token, &ChatPiece::text);
  if (last != chosen.rend()) last->learned = true;
  return chosen;
}

}  // namespace dsj::data
