#include "engine/data/tokenizer/tokenizer.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "common/files/posix_files.h"
#include "engine/data/text/unicode.h"
#include "engine/data/tokenizer/bpe.h"
#include "engine/data/tokenizer/byte_alphabet.h"
#include "engine/data/tokenizer/pre_tokenizer.h"
#include "engine/data/tokenizer/tokenizer_files.h"
#include "engine/data/tokenizer/tokenizer_spec.h"

namespace dsj::data {
struct Tokenizer::Parts {
  std::string file;
  Normalizer normalizer;
  std::optional<PreTokenizer> pre_tokenizer;
  bool byte_level = true;
  std::vector<DecodeStep> decoders;
  /// Added words that are searched in normalized text decode to their normalized form (as in
  /// tokenizers 0.23).
  std::map<int32_t, std::string> decoded_as;
  std::optional<Bpe> bpe;
  std::optional<AddedTokenSplitter> added_raw, added_normalized;
  std::vector<int32_t> prefix_ids, suffix_ids;
  std::optional<int32_t> bos_id, eos_id, pad_id;
  std::vector<int32_t> stop_ids;
  std::vector<std::string> notes;

  StringTable id_of_token;
  std::vector<std::optional<std::string>> token_of_id;
  std::vector<bool> special;

  mutable std::mutex cache_mutex;
  mutable PieceCache cache;
};

namespace {

/// Counts the ids before each mark during encoding.
class Marks {
 public:
  explicit Marks(std::span<const std::size_t> at) : at_(at.begin(), at.end()) {}

  /// The next id begins at byte `begin`; `count` ids precede it.
  void pass(std::size_t begin, std::size_t count) {
    while (firsts_.size() < at_.size() && at_[firsts_.size()] <= begin)
      put(count, count > 0 && at_[firsts_.size()] < begin);
  }
  /// No id follows; `inside`: the remaining marks are within the last one.
  void end(std::size_t count, bool inside) {
    while (firsts_.size() < at_.size()) put(count, inside && count > 0);
  }

  bool any_before(std::size_t end) const {
    return firsts_.size() < at_.size() && at_[firsts_.size()] < end;
  }
  /// The remaining marks before `end`, converted by place(mark) to offsets in a part of the text.
  template <typename Place>
  Marks within(std::size_t end, Place place) const {
    std::vector<std::size_t> inner;
    for (std::size_t i = firsts_.size(); i < at_.size() && at_[i] < end; ++i)
      inner.push_back(place(at_[i]));
    return Marks(inner);
  }
  /// Adds the results of such a part.
  void take(const Marks& inner) {
    firsts_.insert(firsts_.end(), inner.firsts_.begin(), inner.firsts_.end());
    crossed_.insert(crossed_.end(), inner.crossed_.begin(), inner.crossed_.end());
  }
  const std::vector<std::size_t>& firsts() const { return firsts_; }
  const std::vector<bool>& crossed() const { return crossed_; }

 private:
  std::vector<std::size_t> at_;
  void put(std::size_t count, bool crossed) {
    firsts_.push_back(count);
    crossed_.push_back(crossed);
  }
  std::vector<std::size_t> firsts_;  ///< for the marks that were passed
  std::vector<bool> crossed_;
};

std::unexpected<Error> at_file(const TokenizerSpec& spec, std::string message) {
  return bad_input(std::move(message), spec.file);
}

/// The id of each byte; -1 for bytes that never occur in UTF-8, which need no token.
Result<std::array<int32_t, 256>> byte_ids_of(const TokenizerSpec& spec, const StringTable& ids) {
  std::array<int32_t, 256> byte_ids{};
  int missing = 0, first_missing = -1;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const auto id = ids.find(std::string_view(&c, 1));
    byte_ids[static_cast<std::size_t>(byte)] = id.value_or(-1);
    const bool in_utf8 = byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
    if (!id && in_utf8 && missing++ == 0) first_missing = byte;
  }
  if (missing > 0) {
    return at_file(spec, "the vocabulary lacks " + std::to_string(missing) +
                             " of the 243 bytes that text can have (the first is " +
                             std::to_string(first_missing) +
                             "): it is not a byte-level BPE vocabulary");
  }
  return byte_ids;
}

/// Tables have an entry for every id, so an id far above the number of tokens is refused.
Status check_ids(const TokenizerSpec& spec) {
  const std::size_t limit = 4 * (spec.vocab.size() + spec.added.size()) + 65'536;
  const auto check = [&](const std::string& token, int32_t id) -> Status {
    if (id >= 0 && static_cast<std::size_t>(id) < limit) return {};
    return at_file(spec, "token '" + token + "' has id " + std::to_string(id) +
                             ", expected one of " + std::to_string(limit) + " or fewer");
  };
  for (const auto& [token, id] : spec.vocab) DSJ_TRY_STATUS(check(token, id));
  for (const AddedToken& token : spec.added) DSJ_TRY_STATUS(check(token.content, token.id));
  return {};
}

/// Called before added tokens are in `ids`, because Hugging Face's BPE model does not see them.
Result<Characters> characters_of(const TokenizerSpec& spec, const StringTable& ids) {
  const CharacterForm& form = *spec.characters;
  Characters characters{
      .ids = ids, .byte_ids = {}, .byte_fallback = form.byte_fallback, .fuse_unk = form.fuse_unk};
  for (int byte = 0; byte < 256; ++byte) {
    static constexpr char kDigits[] = "0123456789ABCDEF";
    const std::string token = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    characters.byte_ids[static_cast<std::size_t>(byte)] = ids.find(token).value_or(-1);
  }
  if (form.unk_token) {
    characters.unk_id = ids.find(*form.unk_token);
    if (!characters.unk_id) {
      return at_file(spec, "unk_token '" + *form.unk_token + "' is not in the vocabulary");
    }
  }
  return characters;
}

/// The merges that the file lists. The rank of a merge is its line number.
Result<MergeTable> listed_merges(const TokenizerSpec& spec, const StringTable& id_of_token) {
  MergeTable table(spec.merges.size());
  std::string whole;
  for (std::size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    const auto left_id = id_of_token.find(left), right_id = id_of_token.find(right);
    whole.assign(left).append(right);
    const auto result = id_of_token.find(whole);
    if (!left_id || !right_id || !result) {
      const std::string& unknown = !left_id ? left : !right_id ? right : whole;
      return at_file(spec, "merge " + std::to_string(i) + " ('" + left + "' '" + right + "'): '" +
                               unknown + "' is not in the vocabulary");
    }
    table.insert(*left_id, *right_id, {static_cast<uint32_t>(i), *result});
  }
  return table;
}

/// tiktoken's merges: each way to cut a token into two tokens is a merge, and its rank is the
/// token's id.
MergeTable merges_by_id(const StringTable& ids) {
  MergeTable table(ids.size() * 4);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string_view bytes = ids.key(i);
    const int32_t id = ids.id(i);
    for (std::size_t at = 1; at < bytes.size(); ++at) {
      const auto left = ids.find(bytes.substr(0, at));
      if (!left) continue;
      const auto right = ids.find(bytes.substr(at));
      if (!right) continue;
      table.insert(*left, *right, {static_cast<uint32_t>(id), id});
    }
  }
  return table;
}

}  // namespace

Status Tokenizer::set_eos(const std::string& text) {
  const auto id = token_to_id(text);
  if (!id) {
    return bad_input("has no token '" + text + "' to be the eos token", file(),
                     "name one of its added tokens, <|im_end|> for ChatML");
  }
  parts_->eos_id = *id;
  auto& stops = parts_->stop_ids;
  if (std::ranges::find(stops, *id) == stops.end()) stops.insert(stops.begin(), *id);
  return {};
}

Tokenizer::Tokenizer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& model_dir) {
  PosixFiles files;
  return load(files, model_dir);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(Files& files, const std::string& model_dir) {
  DSJ_TRY(TokenizerSpec spec, read_tokenizer_files(files, model_dir));
  return build(std::move(spec));
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::build(TokenizerSpec spec) {
  DSJ_TRY_STATUS(check_ids(spec));
  auto parts = std::make_unique<Parts>();
  std::size_t vocab_bytes = 0;
  for (const auto& entry : spec.vocab) vocab_bytes += entry.first.size();
  StringTable id_of_bytes(spec.vocab.size(), vocab_bytes);
  parts->id_of_token = StringTable(spec.vocab.size() + spec.added.size(), vocab_bytes);
  const auto name_id = [&](const std::string& token, int32_t id) {
    const auto at = static_cast<std::size_t>(id);
    if (parts->token_of_id.size() <= at) {
      parts->token_of_id.resize(at + 1);
      parts->special.resize(at + 1);
    }
    parts->token_of_id[at] = token;
    parts->id_of_token.insert(token, id);
  };
  for (const auto& [token, id] : spec.vocab) {
    name_id(token, id);
    // Merging bytes never yields a token with characters outside the alphabet.
    if (auto bytes = from_byte_alphabet(token)) id_of_bytes.insert(*bytes, id);
  }
  MergeTable merges(0);
  if (spec.merge_by_id) {
    merges = merges_by_id(id_of_bytes);
  } else {
    DSJ_TRY(merges, listed_merges(spec, parts->id_of_token));
  }
  if (spec.characters) {
    DSJ_TRY(Characters characters, characters_of(spec, parts->id_of_token));
    parts->bpe.emplace(std::move(characters), std::move(merges), spec.whole_pieces);
  } else {
    DSJ_TRY(const auto byte_ids, byte_ids_of(spec, id_of_bytes));
    if (!spec.whole_pieces) id_of_bytes = StringTable();
    parts->bpe.emplace(byte_ids, std::move(merges), std::move(id_of_bytes), spec.whole_pieces);
  }

  // Hugging Face searches special tokens first. The first of equal patterns counts.
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_patterns, normalized_patterns;
  std::stable_partition(spec.added.begin(), spec.added.end(),
                        [](const AddedToken& token) { return token.special; });
  for (const AddedToken& token : spec.added) {
    name_id(token.content, token.id);
    parts->special[static_cast<std::size_t>(token.id)] = token.special;
    if (token.normalized) {
      normalized.push_back(token);
      DSJ_TRY(std::string normal, spec.normalizer.apply(token.content));
      normalized_patterns.push_back(std::move(normal));
      parts->decoded_as[token.id] = normalized_patterns.back();
    } else {
      raw.push_back(token);
      raw_patterns.push_back(token.content);
    }
  }
  parts->added_raw.emplace(std::move(raw), raw_patterns);
  parts->added_normalized.emplace(std::move(normalized), normalized_patterns);
  auto pre_tokenizer = PreTokenizer::compile(spec.steps);
  if (!pre_tokenizer) return at_file(spec, pre_tokenizer.error().message);
  parts->pre_tokenizer = std::move(*pre_tokenizer);
  parts->file = std::move(spec.file);
  parts->normalizer = std::move(spec.normalizer);
  parts->byte_level = !spec.characters;
  parts->decoders = std::move(spec.decoders);
  parts->prefix_ids = std::move(spec.prefix_ids);
  parts->suffix_ids = std::move(spec.suffix_ids);
  parts->bos_id = spec.bos_id;
  parts->eos_id = spec.eos_id;
  parts->pad_id = spec.pad_id;
  parts->stop_ids = std::move(spec.stop_ids);
  parts->notes = std::move(spec.notes);
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(parts)));
}

/// The state of one call of encode(). The text is cut into segments at its added tokens; the
/// text between them is normalized and cut at the added tokens of normalized text; the rest is
/// cut into pieces. The marks are converted at each stage.
class Tokenizer::Encoding {
 public:
  Encoding(const Parts& parts, EncodeOptions options, std::size_t limit)
      : parts_(parts), options_(options), limit_(limit) {}

  Status text(std::string_view text, Marks& marks) {
    std::vector<Segment> segments;
    parts_.added_raw->split(text, !options_.parse_special, segments);
    for (const Segment& segment : segments) {
      if (full()) break;
      const std::size_t begin = offset(segment.text, text);
      marks.pass(begin, ids_.size());
      if (segment.id >= 0) {
        ids_.push_back(segment.id);
      } else {
        DSJ_TRY_STATUS(plain_text(segment.text, begin, marks));
      }
    }
    marks.end(ids_.size(), false);
    return {};
  }
  std::vector<int32_t> ids() && { return std::move(ids_); }

 private:
  static std::size_t offset(std::string_view part, std::string_view whole) {
    return static_cast<std::size_t>(part.data() - whole.data());
  }
  bool full() const { return ids_.size() >= limit_; }

  /// `begin`: offset of `text` in encode()'s input.
  Status plain_text(std::string_view text, std::size_t begin, Marks& marks) {
    const Normalizer& normalizer = parts_.normalizer;
    const bool changes = !normalizer.keeps(text);
    std::string normal;
    if (changes) {
      DSJ_TRY(normal, normalizer.apply(text));
    }
    const std::string_view part = changes ? std::string_view(normal) : text;
    Status marked;
    Marks inner = marks.within(begin + text.size(), [&](std::size_t mark) {
      if (!changes) return mark - begin;
      const auto before = normalizer.apply(text.substr(0, mark - begin));
      if (!before) marked = std::unexpected(before.error());
      return before ? before->size() : 0;
    });
    DSJ_TRY_STATUS(marked);
    std::vector<Segment> segments;
    parts_.added_normalized->split(part, !options_.parse_special, segments);
    for (const Segment& segment : segments) {
      if (full()) break;
      const std::size_t at = offset(segment.text, part);
      inner.pass(at, ids_.size());
      if (segment.id >= 0) {
        ids_.push_back(segment.id);
      } else {
        DSJ_TRY_STATUS(normal_text(segment.text, at, begin == 0 && at == 0, inner));
      }
    }
    inner.end(ids_.size(), true);
    marks.take(inner);
    return {};
  }

  /// `begin`: offset of `text` in the normalized text. `first`: at the start of encode()'s input.
  Status normal_text(std::string_view text, std::size_t begin, bool first, Marks& marks) {
    DSJ_TRY(const TextPieces pieces, parts_.pre_tokenizer->cut(text, first));
    Marks inner = marks.within(begin + text.size(), [&](std::size_t mark) { return mark - begin; });
    const std::unique_lock lock(parts_.cache_mutex, std::try_to_lock);
    for (const TextPiece& piece : pieces.list) {
      if (full()) break;
      inner.pass(piece.origin(0), ids_.size());
      if (inner.any_before(piece.origin(piece.text.size()))) {
        piece_with_marks(piece, inner);
      } else {
        parts_.bpe->encode(piece.text, lock ? &parts_.cache : nullptr, ids_);
      }
    }
    inner.end(ids_.size(), true);
    marks.take(inner);
    return {};
  }

  void piece_with_marks(const TextPiece& piece, Marks& marks) {
    std::vector<int32_t> ids;
    std::vector<std::size_t> begins;
    parts_.bpe->encode(piece.text, ids, begins);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      marks.pass(piece.origin(begins[i]), ids_.size());
      ids_.push_back(ids[i]);
    }
  }

  const Parts& parts_;
  const EncodeOptions options_;
  const std::size_t limit_;  ///< stop after this many ids
  std::vector<int32_t> ids_;
};

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  DSJ_TRY(auto marked, encode(text, {}, options));
  return std::move(marked.ids);
}

Result<MarkedIds> Tokenizer::encode(std::string_view text, std::span<const std::size_t> at,
                                    EncodeOptions options) const {
  if (const auto offset = find_invalid_utf8(text)) {
    return bad_input("text is not UTF-8: byte " + std::to_string(*offset) + " of " +
                     std::to_string(text.size()));
  }
  std::vector<int32_t> prefix, suffix;
  if (options.add_special_tokens) {
    prefix = parts_->prefix_ids;
    suffix = parts_->suffix_ids;
  }
  std::size_t limit = SIZE_MAX;
  if (options.max_length) {
    limit = static_cast<std::size_t>(std::max<int64_t>(*options.max_length, 0));
    limit -= std::min(limit, prefix.size() + suffix.size());
  }
  Marks marks(at);
  Encoding encoding(*parts_, options, limit);
  DSJ_TRY_STATUS(encoding.text(text, marks));
  MarkedIds found{std::move(encoding).ids(), marks.firsts(), marks.crossed()};
  // An id that is cut off does not extend over a mark.
  for (std::size_t i = 0; i < at.size(); ++i)
    found.crossed[i] = found.crossed[i] && found.firsts[i] <= std::min(found.ids.size(), limit);
  found.ids.resize(std::min(found.ids.size(), limit));
  for (std::size_t& first : found.firsts) first = prefix.size() + std::min(first, found.ids.size());
  found.ids.insert(found.ids.begin(), prefix.begin(), prefix.end());
  found.ids.insert(found.ids.end(), suffix.begin(), suffix.end());
  return found;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::string bytes;
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= parts_->token_of_id.size() || !parts_->token_of_id[at]) continue;
    if (skip_special && parts_->special[at]) continue;
    const std::string& token = *parts_->token_of_id[at];
    if (!parts_->byte_level) {
      const auto normal = parts_->decoded_as.find(id);
      tokens.push_back(normal == parts_->decoded_as.end() ? token : normal->second);
      continue;
    }
    // For added tokens too, as Hugging Face's byte-level decoder does.
    if (auto mapped = from_byte_alphabet(token)) {
      bytes += *mapped;
    } else {
      bytes += token;
    }
  }
  if (!parts_->byte_level) bytes = decode_tokens(parts_->decoders, std::move(tokens));
  return to_valid_utf8(bytes);
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(parts_->token_of_id.size());
}
std::optional<int32_t> Tokenizer::eos_id() const {
  return parts_->eos_id;
}
std::optional<int32_t> Tokenizer::bos_id() const {
  return parts_->bos_id;
}
std::optional<int32_t> Tokenizer::pad_id() const {
  return parts_->pad_id;
}
const std::vector<int32_t>& Tokenizer::stop_ids() const {
  return parts_->stop_ids;
}
const std::vector<std::string>& Tokenizer::notes() const {
  return parts_->notes;
}
const std::string& Tokenizer::file() const {
  return parts_->file;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  return parts_->id_of_token.find(token);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= parts_->token_of_id.size()) return std::nullopt;
  return parts_->token_of_id[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_special(int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < parts_->special.size() &&
         parts_->special[static_cast<std::size_t>(id)];
}

}  // namespace dsj::data
