#include "engine/data/chat/answers.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace dsj::data {
namespace {

bool is_white(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
  return text;
}

/// Finds the begin and end of a conversation's answers by rendering the turns before them.
class Answers {
 public:
  Answers(const ChatTemplate& form, std::span<const Turn> turns, const jinja::Value& tools,
          std::string_view whole)
      : form_(form), turns_(turns), tools_(tools), whole_(whole) {}

  Result<TextSpan> span_of(size_t turn) const {
    DSJ_TRY(const size_t begin, begin_of(turn));
    DSJ_TRY(const size_t end, end_of(turn, begin));
    return TextSpan{begin, without_space(begin, end)};
  }

  /// The text between the turns before an answer and the start of the answer.
  std::optional<std::string_view> lead(size_t turn, size_t begin) const {
    const auto plain = form_.render(turns_.first(turn), tools_, false);
    if (!plain || !whole_.starts_with(plain->text) || plain->text.size() > begin)
      return std::nullopt;
    return whole_.substr(plain->text.size(), begin - plain->text.size());
  }

  /// The answer's end, without the white space that follows its last special token.
  size_t without_space(size_t begin, size_t end) const {
    const std::string_view answer = whole_.substr(begin, end - begin);
    if (end_token(answer, form_.specials()).empty()) return end;
    while (end > begin && is_white(whole_[end - 1])) --end;
    return end;
  }

 private:
  std::unexpected<Error> unknown(size_t turn, const std::string& why) const {
    return bad_input(
        "turn " + std::to_string(turn) + ": its learned part cannot be determined: " + why,
        form_.name(),
        "mark the answers in the template with {% generation %}, or learn only from the last "
        "turn (\"weight\": 0 on the others)");
  }

  /// The generation prompt's end. If the prompt contains more than the whole text does (an
  /// opened <think>), the answer begins after the last line or special token that both share.
  Result<size_t> begin_of(size_t turn) const {
    const auto before = form_.render(turns_.first(turn), tools_, true);
    if (!before) return unknown(turn, before.error().to_string());
    const std::string& prompt = before->text;
    if (whole_.starts_with(prompt)) {
      // If the template has no generation prompt, the answer's own header is not learned.
      const bool prompts = form_.mentions("add_generation_prompt");
      return prompt.size() + (prompts ? 0 : header(whole_.substr(prompt.size()), turns_[turn]));
    }
    const auto plain = form_.render(turns_.first(turn), tools_, false);
    if (!plain || !whole_.starts_with(plain->text)) {
      return unknown(turn, "the turns before it are rendered differently without it");
    }
    size_t common = static_cast<size_t>(std::ranges::mismatch(prompt, whole_).in1 - prompt.begin());
    while (common > plain->text.size() && prompt[common - 1] != '\n' &&
           !ends_with_special(std::string_view(prompt).substr(0, common)))
      --common;
    if (common > plain->text.size()) return common;
    return unknown(turn, "the generation prompt does not precede it");
  }

  /// The special token at the start of `text`; empty if there is none.
  std::string_view first_special(std::string_view text) const {
    std::string_view best;
    for (const std::string& one : form_.specials()) {
      if (one.size() > best.size() && text.starts_with(one)) best = one;
    }
    return best;
  }

  /// The length of a turn's header: special tokens and the role's name, next to or inside one
  /// of them, with the line breaks after them. 0 if the turn's text does not begin with one.
  size_t header(std::string_view text, const Turn& turn) const {
    size_t at = 0;
    bool named = false;
    while (!named) {
      const std::string_view token = first_special(text.substr(at));
      named = token.find(turn.role) != token.npos;
      at += token.size();
      if (!token.empty()) continue;
      if (!text.substr(at).starts_with(turn.role)) return 0;
      at += turn.role.size();
      at += first_special(text.substr(at)).size();
      named = true;
    }
    const size_t content = turn.content.empty() ? text.size() : text.find(turn.content);
    while (at < std::min(content, text.size()) && text[at] == '\n') ++at;
    return at;
  }

  bool ends_with_special(std::string_view text) const {
    return std::ranges::any_of(form_.specials(),
                               [text](const std::string& one) { return text.ends_with(one); });
  }

  Result<size_t> end_of(size_t turn, size_t begin) const {
    if (turn + 1 == turns_.size()) return whole_.size();
    const auto after = form_.render(turns_.first(turn + 1), tools_, false);
    if (!after) return unknown(turn, after.error().to_string());
    if (whole_.starts_with(after->text) && after->text.size() >= begin) return after->text.size();
    // As the last turn it renders differently (with its reasoning): search for its end token.
    const std::string_view token = end_token(after->text, form_.specials());
    const size_t at = token.empty() ? std::string_view::npos : whole_.find(token, begin);
    if (at == std::string_view::npos || turns_[turn].content.find(token) != std::string::npos ||
        at >= next_begin(turn)) {
      return unknown(turn, "it is rendered differently when turns follow");
    }
    return at + token.size();
  }

  /// An upper bound of where the turn after the next answer's prompt begins.
  size_t next_begin(size_t turn) const {
    for (size_t next = turn + 1; next < turns_.size(); ++next) {
      if (turns_[next].role != "assistant") continue;
      const auto begin = begin_of(next);
      return begin ? *begin : whole_.size();
    }
    return whole_.size();
  }

  const ChatTemplate& form_;
  const std::span<const Turn> turns_;
  const jinja::Value& tools_;
  const std::string_view whole_;
};

constexpr size_t kManyTurns = 8;
constexpr size_t kChecked = 6;  // answers that both ways must agree on

/// The answers of a long conversation whose text is the concatenation of its turns' texts, as
/// ChatML's. Renders each turn alone after the first one, so the work is linear in the turns.
/// nullopt if the text is not such a concatenation; the caller then uses another way.
std::optional<std::vector<TextSpan>> spans_by_turn(const ChatTemplate& form,
                                                   std::span<const Turn> turns,
                                                   const jinja::Value& tools,
                                                   std::string_view whole) {
  const auto first = form.render(turns.first(1), tools, false);
  const auto prompt = form.render(turns.first(1), tools, true);
  if (!first || !prompt || !whole.starts_with(first->text) ||
      !prompt->text.starts_with(first->text))
    return std::nullopt;
  const std::string lead = prompt->text.substr(first->text.size());
  if (lead.empty() || turns[0].role == "assistant") return std::nullopt;
  std::vector<TextSpan> spans;
  size_t at = first->text.size();
  for (const Turn& turn : turns.subspan(1)) {
    const std::array<Turn, 2> pair = {turns[0], turn};
    const auto both = form.render(pair, tools, false);
    if (!both || !both->text.starts_with(first->text)) return std::nullopt;
    const auto piece = std::string_view(both->text).substr(first->text.size());
    const bool is_answer = turn.role == "assistant";
    if (whole.substr(at, piece.size()) != piece || (is_answer && !piece.starts_with(lead)))
      return std::nullopt;
    if (turn.learned) spans.push_back({at + lead.size(), at + piece.size()});
    at += piece.size();
  }
  if (at != whole.size()) return std::nullopt;
  return spans;
}

/// The answers of a long conversation whose template writes the same text before each of them
/// and ends each with the same special token: searches for both. This covers templates that
/// render a turn differently when others follow (Qwen3 drops its reasoning), for which
/// spans_by_turn fails. The result counts only if the text before answers occurs once per
/// answer, each answer's own text is in its part, and a sample of answers, including the first
/// and the last, is where span_of finds them. Otherwise nullopt.
std::optional<std::vector<TextSpan>> spans_by_mark(const Answers& answers, const ChatTemplate& form,
                                                   std::span<const Turn> turns,
                                                   std::string_view whole) {
  std::vector<size_t> assistants, learned;  // indices of turns; learned: indices in assistants
  for (size_t i = 0; i < turns.size(); ++i) {
    if (turns[i].role != "assistant") continue;
    if (turns[i].learned) learned.push_back(assistants.size());
    assistants.push_back(i);
  }
  if (learned.size() <= kChecked) return std::nullopt;
  const auto first = answers.span_of(assistants[learned[0]]);
  if (!first) return std::nullopt;
  const auto lead = answers.lead(assistants[learned[0]], first->begin);
  if (!lead || lead->empty()) return std::nullopt;
  const std::string_view token =
      end_token(whole.substr(first->begin, first->end - first->begin), form.specials());
  if (token.empty()) return std::nullopt;
  std::vector<size_t> begins;
  for (size_t at = whole.find(*lead); at != whole.npos; at = whole.find(*lead, at + lead->size()))
    begins.push_back(at + lead->size());
  if (begins.size() != assistants.size()) return std::nullopt;
  std::vector<TextSpan> spans;
  for (const size_t i : learned) {
    const std::string& content = turns[assistants[i]].content;
    const size_t found = whole.find(token, begins[i]);
    const size_t next = i + 1 < begins.size() ? begins[i + 1] - lead->size() : whole.size();
    if (found == whole.npos || found >= next || content.find(token) != content.npos)
      return std::nullopt;
    spans.push_back({begins[i], found + token.size()});
    if (whole.substr(begins[i], found - begins[i]).find(trimmed(content)) == whole.npos)
      return std::nullopt;
  }
  for (size_t check = 0; check < kChecked; ++check) {
    const size_t i = check * (learned.size() - 1) / (kChecked - 1);
    const auto exact = answers.span_of(assistants[learned[i]]);
    if (!exact || *exact != spans[i]) return std::nullopt;
  }
  return spans;
}

Result<std::vector<TextSpan>> marked_spans(const ChatTemplate& form, std::span<const Turn> turns,
                                           const jinja::Rendered& whole) {
  std::vector<TextSpan> spans;
  for (const auto& [begin, end] : whole.generated) spans.push_back({begin, end});
  const auto is_answer = [](const Turn& turn) { return turn.role == "assistant"; };
  if (std::ranges::all_of(turns, [&](const Turn& turn) { return turn.learned == is_answer(turn); }))
    return spans;
  if (std::ssize(spans) != std::ranges::count_if(turns, is_answer)) {
    return bad_input("has " + std::to_string(spans.size()) +
                         " {% generation %} blocks in a conversation of " +
                         std::to_string(std::ranges::count_if(turns, is_answer)) +
                         " answers, and the row leaves some of those out",
                     form.name());
  }
  std::vector<TextSpan> kept;
  size_t answer = 0;
  for (const Turn& turn : turns) {
    if (!is_answer(turn)) continue;
    if (turn.learned) kept.push_back(spans[answer]);
    ++answer;
  }
  return kept;
}

}  // namespace

std::string_view end_token(std::string_view text, const std::vector<std::string>& specials) {
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  std::string_view best;
  for (const std::string& one : specials) {
    if (one.size() > best.size() && text.ends_with(one)) best = one;
  }
  return best;
}

Result<std::vector<TextSpan>> spans_one_by_one(const ChatTemplate& form,
                                               std::span<const Turn> turns,
                                               const jinja::Value& tools, std::string_view whole) {
  const Answers answers(form, turns, tools, whole);
  std::vector<TextSpan> spans;
  for (size_t i = 0; i < turns.size(); ++i) {
    if (!turns[i].learned) continue;
    DSJ_TRY(const TextSpan span, answers.span_of(i));
    spans.push_back(span);
  }
  return spans;
}

Result<std::vector<TextSpan>> learned_spans(const ChatTemplate& form, std::span<const Turn> turns,
                                            const jinja::Value& tools,
                                            const jinja::Rendered& whole) {
  if (form.has_generation()) return marked_spans(form, turns, whole);
  if (turns.size() > kManyTurns) {
    const Answers answers(form, turns, tools, whole.text);
    if (auto spans = spans_by_turn(form, turns, tools, whole.text)) {
      for (TextSpan& span : *spans) span.end = answers.without_space(span.begin, span.end);
      return std::move(*spans);
    }
    if (auto spans = spans_by_mark(answers, form, turns, whole.text)) return std::move(*spans);
  }
  return spans_one_by_one(form, turns, tools, whole.text);
}

}  // namespace dsj::data
