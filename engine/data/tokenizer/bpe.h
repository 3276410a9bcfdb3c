// Byte-pair encoding of one piece of text. It starts from bytes, or in SentencePiece's form
// from characters, and merges the pair with the lowest rank (the leftmost of equal ranks) until
// none is left.
// Internal to engine/data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/data/tokenizer/string_table.h"

namespace dsj::data {

struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};

/// (left, right) → (rank, result). Open addressing, because BPE spends its time in these lookups.
class MergeTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t result = -1;
  };

  explicit MergeTable(std::size_t expected);
  /// If a pair is given twice, the later merge counts, as in Hugging Face's loader.
  void insert(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = UINT64_MAX;
    Merge merge;
  };
  std::size_t slot_of(uint64_t key) const;
  void grow();
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

/// Caches the ids of pieces. It is emptied when it is full. For one thread.
class PieceCache {
 public:
  static constexpr std::size_t kPiecesMax = 1 << 16;
  static constexpr std::size_t kPieceBytesMax = 64;
  /// Returns true and appends the ids if the piece is cached.
  bool find(std::string_view piece, std::vector<int32_t>& ids) const;
  void store(std::string_view piece, const int32_t* ids, std::size_t count);

 private:
  struct Run {
    uint32_t begin = 0, count = 0;
  };
  std::unordered_map<std::string, Run, StringHash, std::equal_to<>> runs_;
  std::vector<int32_t> ids_;
};

/// The symbols from which merging starts in SentencePiece's form: a character that is a token;
/// else its bytes, if all of them are tokens; else the unknown token; else nothing.
struct Characters {
  StringTable ids;                    ///< token → id, for every token
  std::array<int32_t, 256> byte_ids;  ///< the ids of <0x00> to <0xFF>; -1 if the token is missing
  bool byte_fallback = false;
  std::optional<int32_t> unk_id;
  bool fuse_unk = false;  ///< adjacent unknown characters become one token
};

/// Immutable after construction; several threads may call encode().
class Bpe {
 public:
  /// `byte_ids`: the id of each single byte. `whole_pieces`: a piece that is a token becomes
  /// that token without merges (ignore_merges; tiktoken). Without it `id_of_bytes` may be
  /// empty.
  Bpe(std::array<int32_t, 256> byte_ids, MergeTable merges, StringTable id_of_bytes,
      bool whole_pieces);
  /// Pieces must be well-formed UTF-8.
  Bpe(Characters characters, MergeTable merges, bool whole_pieces);

  /// Appends the ids of `piece` (its bytes). `cache` may be null.
  void encode(std::string_view piece, PieceCache* cache, std::vector<int32_t>& ids) const;
  /// The same ids; `begins` gets the offset in `piece` at which each token begins.
  void encode(std::string_view piece, std::vector<int32_t>& ids,
              std::vector<std::size_t>& begins) const;

 private:
  /// `begins`: may be null; otherwise gets the offset at which each symbol begins.
  std::vector<int32_t> symbols_of(std::string_view piece, std::vector<std::size_t>* begins) const;
  /// The token that equals the whole piece, if whole pieces take precedence over merges.
  std::optional<int32_t> whole(std::string_view piece) const;
  void merge_short(std::span<const int32_t> symbols, std::vector<int32_t>& ids) const;
  /// `firsts`: may be null; otherwise gets the first symbol of each token.
  void merge_long(std::span<const int32_t> symbols, std::vector<int32_t>& ids,
                  std::vector<std::size_t>* firsts) const;

  std::array<int32_t, 256> byte_ids_{};
  std::optional<Characters> characters_;
  MergeTable merges_;
  StringTable id_of_bytes_;
  bool whole_pieces_;
};

}  // namespace dsj::data
