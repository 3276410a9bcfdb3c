// Which tokens of a row are learned, in addition to its template's and turns' rules: the choices
// of spec.training. Internal to engine/data, except the struct, which is in dataset.h's options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/data/chat/chat.h"
#include "engine/data/shapes/sample.h"

namespace dsj::data {

/// Which tokens that end a turn are learned, as in axolotl's train_on_eos.
enum class EndTokens {
  Turn,  ///< those of learned answers
  All,   ///< also those of questions, system messages and other unlearned turns
  Last,  ///< only the last one of the row
  None,
};

struct Learning {
  bool inputs = false;       ///< trainOnInputs: every token (rows.h); the other members are ignored
  bool last_answer = false;  ///< maskHistory: only the last of several answers
  EndTokens ends = EndTokens::Turn;

  bool operator==(const Learning&) const = default;
};

/// The choices of spec.training. `train_on_eos`: turn, all, last or none, as dsconfig has checked.
Learning learning_of(bool train_on_inputs, bool mask_history, std::string_view train_on_eos);

/// The aim of spec.training's objective: pairs for dpo, orpo and reward, marked answers for
/// kto, texts for pretrain.
RowAim aim_of(std::string_view objective);

/// Keeps only the last of the learned turns, if `learning` says so.
void choose_turns(const Learning& learning, std::vector<Turn>& turns);

/// The same text with other learned parts. `specials`: the special tokens. The end token of an
/// answer is the special token at its end, apart from white space. If no answer ends with one,
/// `ends` changes nothing.
std::vector<ChatPiece> choose_pieces(const Learning& learning, std::vector<ChatPiece> pieces,
                                     const std::vector<std::string>& specials);

}  // namespace dsj::data
