#include "engine/data/tokenizer/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "engine/data/text/unicode.h"

namespace dsj::data {
namespace {

// Up to this many symbols a linear scan for the lowest rank is faster than a heap.
constexpr std::size_t kShortPiece = 48;

constexpr uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t expected) {
  std::size_t size = 16;
  while (size < 2 * expected) size *= 2;
  slots_.resize(size);
}

std::size_t MergeTable::slot_of(uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  uint64_t hash = key * 0x9E3779B97F4A7C15u;
  std::size_t slot = (hash ^ hash >> 32) & mask;
  while (slots_[slot].key != key && slots_[slot].key != UINT64_MAX) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.key != UINT64_MAX) slots_[slot_of(slot.key)] = slot;
  }
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  if (2 * (used_ + 1) > slots_.size()) grow();
  const uint64_t key = key_of(left, right);
  Slot& slot = slots_[slot_of(key)];
  used_ += slot.key == UINT64_MAX;
  slot = {key, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  return slots_[slot_of(key_of(left, right))].merge;
}

bool PieceCache::find(std::string_view piece, std::vector<int32_t>& ids) const {
  const auto found = runs_.find(piece);
  if (found == runs_.end()) return false;
  const auto begin = ids_.begin() + found->second.begin;
  ids.insert(ids.end(), begin, begin + found->second.count);
  return true;
}

void PieceCache::store(std::string_view piece, const int32_t* ids, std::size_t count) {
  if (piece.size() > kPieceBytesMax) return;
  if (runs_.size() >= kPiecesMax) {
    runs_.clear();
    ids_.clear();
  }
  runs_.emplace(piece, Run{static_cast<uint32_t>(ids_.size()), static_cast<uint32_t>(count)});
  ids_.insert(ids_.end(), ids, ids + count);
}

Bpe::Bpe(std::array<int32_t, 256> byte_ids, MergeTable merges, StringTable id_of_bytes,
         bool whole_pieces)
    : byte_ids_(byte_ids),
      merges_(std::move(merges)),
      id_of_bytes_(std::move(id_of_bytes)),
      whole_pieces_(whole_pieces) {}

Bpe::Bpe(Characters characters, MergeTable merges, bool whole_pieces)
    : characters_(std::move(characters)), merges_(std::move(merges)), whole_pieces_(whole_pieces) {}

std::vector<int32_t> Bpe::symbols_of(std::string_view piece,
                                     std::vector<std::size_t>* begins) const {
  std::vector<int32_t> symbols;
  symbols.reserve(piece.size());
  const auto put = [&](int32_t id, std::size_t begin) {
    symbols.push_back(id);
    if (begins != nullptr) begins->push_back(begin);
  };
  if (!characters_) {
    for (std::size_t i = 0; i < piece.size(); ++i)
      put(byte_ids_[static_cast<uint8_t>(piece[i])], i);
    return symbols;
  }
  // As in Hugging Face's merge_word: an unknown token is held back until a known character follows.
  // Bytes do not count as known.
  bool unknown = false;
  std::size_t unknown_begin = 0;
  for (std::size_t at = 0, begin = 0; at < piece.size(); begin = at) {
    const std::string_view character = piece.substr(at, code_point_at(piece, at).length);
    at += character.size();
    if (const auto id = characters_->ids.find(character)) {
      if (unknown) put(*characters_->unk_id, unknown_begin);
      unknown = false;
      put(*id, begin);
      continue;
    }
    const auto byte_id = [&](char c) { return characters_->byte_ids[static_cast<uint8_t>(c)]; };
    if (characters_->byte_fallback &&
        std::ranges::all_of(character, [&](char c) { return byte_id(c) >= 0; })) {
      for (std::size_t i = 0; i < character.size(); ++i) put(byte_id(character[i]), begin + i);
      continue;
    }
    if (!characters_->unk_id) continue;
    if (unknown && !characters_->fuse_unk) put(*characters_->unk_id, unknown_begin);
    if (!unknown || !characters_->fuse_unk) unknown_begin = begin;
    unknown = true;
  }
  if (unknown) put(*characters_->unk_id, unknown_begin);
  return symbols;
}

std::optional<int32_t> Bpe::whole(std::string_view piece) const {
  if (!whole_pieces_) return std::nullopt;
  return (characters_ ? characters_->ids : id_of_bytes_).find(piece);
}

void Bpe::encode(std::string_view piece, PieceCache* cache, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() == 1 && !characters_) {
    ids.push_back(byte_ids_[static_cast<uint8_t>(piece[0])]);
    return;
  }
  if (cache != nullptr && cache->find(piece, ids)) return;
  const std::size_t before = ids.size();
  if (const auto token = whole(piece)) {
    ids.push_back(*token);
  } else if (!characters_ && piece.size() <= kShortPiece) {
    std::array<int32_t, kShortPiece> symbols;  // no allocation for most pieces
    for (std::size_t i = 0; i < piece.size(); ++i) {
      symbols[i] = byte_ids_[static_cast<uint8_t>(piece[i])];
    }
    merge_short(std::span(symbols).first(piece.size()), ids);
  } else {
    const std::vector<int32_t> symbols = symbols_of(piece, nullptr);
    if (symbols.size() <= kShortPiece) {
      merge_short(symbols, ids);
    } else {
      merge_long(symbols, ids, nullptr);
    }
  }
  if (cache != nullptr) cache->store(piece, ids.data() + before, ids.size() - before);
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids,
                 std::vector<std::size_t>& begins) const {
  if (piece.empty()) return;
  if (const auto token = whole(piece)) {
    ids.push_back(*token);
    begins.push_back(0);
    return;
  }
  std::vector<std::size_t> symbol_begins, firsts;
  const std::vector<int32_t> symbols = symbols_of(piece, &symbol_begins);
  merge_long(symbols, ids, &firsts);
  for (const std::size_t first : firsts) begins.push_back(symbol_begins[first]);
}

void Bpe::merge_short(std::span<const int32_t> symbols, std::vector<int32_t>& ids) const {
  std::array<int32_t, kShortPiece> id;
  std::array<MergeTable::Merge, kShortPiece> merge;  // [i]: the merge of id[i] and id[i + 1]
  std::size_t count = symbols.size();
  for (std::size_t i = 0; i < count; ++i) id[i] = symbols[i];
  for (std::size_t i = 0; i + 1 < count; ++i) merge[i] = merges_.find(id[i], id[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (merge[i].rank < merge[best].rank) best = i;
    }
    if (merge[best].rank == MergeTable::kNoRank) break;
    id[best] = merge[best].result;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      id[i] = id[i + 1];
      merge[i] = merge[i + 1];
    }
    --count;
    if (best > 0) merge[best - 1] = merges_.find(id[best - 1], id[best]);
    if (best + 1 < count) merge[best] = merges_.find(id[best], id[best + 1]);
  }
  ids.insert(ids.end(), id.begin(), id.begin() + static_cast<std::ptrdiff_t>(count));
}

void Bpe::merge_long(std::span<const int32_t> given, std::vector<int32_t>& ids,
                     std::vector<std::size_t>* firsts) const {
  if (given.empty()) return;
  constexpr uint32_t kEnd = UINT32_MAX;
  struct Symbol {
    int32_t id;
    uint32_t before, after;
  };
  struct Candidate {
    uint32_t rank, at;
    int32_t left, right, result;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto count = static_cast<uint32_t>(given.size());
  std::vector<Symbol> symbols(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {given[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](uint32_t at) {
    if (at == kEnd || symbols[at].after == kEnd) return;
    const int32_t left = symbols[at].id, right = symbols[symbols[at].after].id;
    const auto merge = merges_.find(left, right);
    if (merge.rank != MergeTable::kNoRank) queue.push({merge.rank, at, left, right, merge.result});
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.at];
    // The entry is outdated if either side was merged since. A removed symbol has id -1.
    if (left.id != top.left || left.after == kEnd || symbols[left.after].id != top.right) continue;
    Symbol& right = symbols[left.after];
    left.id = top.result;
    right.id = -1;
    left.after = right.after;
    if (left.after != kEnd) symbols[left.after].before = top.at;
    consider(left.before);
    consider(top.at);
  }
  for (uint32_t at = 0; at != kEnd; at = symbols[at].after) {
    ids.push_back(symbols[at].id);
    if (firsts != nullptr) firsts->push_back(at);
  }
}

}  // namespace dsj::data
