// Which tokens of a row are learned, beyond what its template and its turns say: the choices of
// spec.training. Internal to engine/data, but for the struct that dataset.h's options hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/chat/chat.h"
#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// The token that ends a turn, as axolotl's train_on_eos.
enum class EndTokens {
  Turn,  ///< of each answer that is learned
  All,   ///< also of what is not learned: questions, a system message
  Last,  ///< the last one of the row alone
  None,
};

struct Learning {
  bool inputs = false;       ///< every token: trainOnInputs (rows.h; the rest then says nothing)
  bool last_answer = false;  ///< of several answers the last alone: maskHistory
  EndTokens ends = EndTokens::Turn;

  bool operator==(const Learning&) const = default;
};

/// The choices of spec.training. `train_on_eos`: turn, all, last or none, as dsconfig has checked.
Learning learning_of(bool train_on_inputs, bool mask_history, std::string_view train_on_eos);

/// What spec.training's objective reads rows for: dpo and orpo pairs, kto marked answers, pretrain
/// texts.
RowAim aim_of(std::string_view objective);

/// Leaves of the turns that are learned only the last, if `learning` says so.
void choose_turns(const Learning& learning, std::vector<Turn>& turns);

/// The same text, with other parts of it learned. `specials`: the special tokens; the one with which
/// an answer ends, white space aside, is its end token. Where no answer ends with one, `ends`
/// changes nothing.
std::vector<ChatPiece> choose_pieces(const Learning& learning, std::vector<ChatPiece> pieces,
                                     const std::vector<std::string>& specials);

}  // namespace dsj::data
