#include "engine/data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/byte_alphabet.h"

namespace dsj::data {
namespace {

using Behavior = CutStep::Behavior;
using Match = CutStep::Match;

/// A part of a piece; `match`: it is a match of the step.
struct Part {
  Span span;
  bool match = false;
};

std::vector<Part> parts_of(const std::vector<Span>& matches, std::size_t size, bool invert) {
  std::vector<Part> parts;
  std::size_t done = 0;
  const auto put = [&](std::size_t begin, std::size_t end, bool match) {
    if (begin < end) parts.push_back({{begin, end}, match != invert});
  };
  for (const Span& match : matches) {
    put(done, match.begin, false);
    put(match.begin, match.end, true);
    done = match.end;
  }
  put(done, size, false);
  return parts;
}

/// Only the match next to other text joins that text, not a whole run of matches.
std::vector<Part> merged(std::vector<Part> parts, Behavior behavior) {
  std::vector<Part> out;
  const bool next = behavior == Behavior::MergedWithNext;
  if (next) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const Part& part : parts) {
    const bool joins =
        behavior == Behavior::Contiguous ? part.match == previous : part.match && !previous;
    if (joins && !out.empty()) {
      out.back().span = {std::min(out.back().span.begin, part.span.begin),
                         std::max(out.back().span.end, part.span.end)};
    } else {
      out.push_back(part);
    }
    previous = part.match;
  }
  if (next) std::reverse(out.begin(), out.end());
  return out;
}

TextPiece part_of(const TextPiece& piece, const Span& span) {
  return {piece.text.substr(span.begin, span.end - span.begin), piece.begin + span.begin,
          piece.origins == nullptr ? nullptr : piece.origins + span.begin};
}

/// Cuts a piece. The usual behaviors work without a list of parts.
void cut_piece(const CutStep& step, const TextPiece& piece, const std::vector<Span>& matches,
               std::vector<TextPiece>& out) {
  if (step.behavior != Behavior::Isolated && step.behavior != Behavior::Removed) {
    for (const Part& part :
         merged(parts_of(matches, piece.text.size(), step.invert), step.behavior))
      out.push_back(part_of(piece, part.span));
    return;
  }
  const bool drop = step.behavior == Behavior::Removed;
  const auto put = [&](std::size_t begin, std::size_t end, bool match) {
    if (begin < end && !(drop && match != step.invert)) out.push_back(part_of(piece, {begin, end}));
  };
  std::size_t done = 0;
  for (const Span& match : matches) {
    put(done, match.begin, false);
    put(match.begin, match.end, true);
    done = match.end;
  }
  put(done, piece.text.size(), false);
}

bool matches_character(Match match, char32_t c) {
  if (match == Match::Digit) return is_numeric(c);
  return match == Match::Punctuation ? is_punctuation(c) : is_white_space(c);
}

/// Converts offsets in the byte alphabet's text to offsets in bytes: a character there is one byte.
void to_bytes(std::string_view alphabet, std::vector<Span>& matches) {
  std::size_t at = 0, bytes = 0;
  const auto place = [&](std::size_t end) {
    while (at < end) {
      at += code_point_at(alphabet, at).length;
      ++bytes;
    }
    return bytes;
  };
  for (Span& match : matches) {
    match.begin = place(match.begin);
    match.end = place(match.end);
  }
}

/// Puts `prefix` in front of the piece and replaces its spaces by `space`.
TextPiece rewritten(const TextPiece& piece, std::string_view prefix, std::string_view space,
                    TextPieces& pieces) {
  auto owned = std::make_unique<TextPieces::Owned>();
  owned->text = prefix;
  owned->origins.assign(prefix.size(), static_cast<uint32_t>(piece.origin(0)));
  for (std::size_t i = 0; i < piece.text.size(); ++i) {
    const std::string_view put = piece.text[i] == ' ' ? space : piece.text.substr(i, 1);
    owned->text += put;
    owned->origins.insert(owned->origins.end(), put.size(), static_cast<uint32_t>(piece.origin(i)));
  }
  owned->origins.push_back(static_cast<uint32_t>(piece.origin(piece.text.size())));
  pieces.owned.push_back(std::move(owned));
  const TextPieces::Owned& kept = *pieces.owned.back();
  return {kept.text, piece.begin, kept.origins.data()};
}

void show_spaces(const Metaspace& metaspace, const TextPiece& piece, bool first, TextPieces& pieces,
                 std::vector<TextPiece>& out) {
  const std::string& mark = metaspace.replacement;
  const bool wanted =
      metaspace.prepend == Metaspace::Prepend::Always ||
      (metaspace.prepend == Metaspace::Prepend::First && first && piece.origin(0) == 0);
  const bool has_one = piece.text.starts_with(' ') || piece.text.starts_with(mark);
  const TextPiece shown = rewritten(piece, wanted && !has_one ? mark : "", mark, pieces);
  std::size_t begin = 0;
  while (metaspace.split) {
    const std::size_t from = shown.text.substr(begin).starts_with(mark) ? mark.size() : 0;
    const std::size_t at = shown.text.find(mark, begin + from);
    if (at == shown.text.npos) break;
    out.push_back(part_of(shown, {begin, at}));
    begin = at;
  }
  if (begin < shown.text.size()) out.push_back(part_of(shown, {begin, shown.text.size()}));
}

}  // namespace

Result<PreTokenizer> PreTokenizer::compile(const std::vector<CutStep>& steps) {
  PreTokenizer built;
  for (const CutStep& step : steps) {
    Step one{.what = step, .pattern = std::nullopt};
    if (step.match == Match::Pattern || step.match == Match::Literal) {
      DSJ_TRY(one.pattern, SplitPattern::compile(step.pattern, step.match == Match::Literal));
    }
    built.steps_.push_back(std::move(one));
  }
  return built;
}

Status PreTokenizer::find(const Step& step, std::string_view text, std::vector<Span>& matches) {
  if (step.pattern) return step.pattern->match(text, matches);
  matches.clear();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (matches_character(step.what.match, c.value)) matches.push_back({at, at + c.length});
    at += c.length;
  }
  return {};
}

Status PreTokenizer::run(const Step& step, bool first, TextPieces& pieces) {
  std::vector<TextPiece> out;
  std::vector<Span> matches;
  for (TextPiece piece : pieces.list) {
    if (step.what.metaspace) {
      show_spaces(*step.what.metaspace, piece, first, pieces, out);
      continue;
    }
    if (step.what.add_prefix_space && !piece.text.starts_with(' '))
      piece = rewritten(piece, " ", " ", pieces);
    if (step.what.match == Match::Nothing) {
      out.push_back(piece);
      continue;
    }
    if (step.what.in_byte_alphabet) {
      const std::string alphabet = to_byte_alphabet(piece.text);
      DSJ_TRY_STATUS(find(step, alphabet, matches));
      to_bytes(alphabet, matches);
    } else {
      DSJ_TRY_STATUS(find(step, piece.text, matches));
    }
    cut_piece(step.what, piece, matches, out);
  }
  pieces.list = std::move(out);
  return {};
}

Result<TextPieces> PreTokenizer::cut(std::string_view text, bool first) const {
  TextPieces pieces{.list = {{text}}, .owned = {}};
  for (const Step& step : steps_) DSJ_TRY_STATUS(run(step, first, pieces));
  return pieces;
}

}  // namespace dsj::data
