#include "engine/data/tokenizer/sentencepiece_model.h"

#include <cstring>
#include <optional>

#include "engine/data/text/unicode.h"

namespace dsj::data {
namespace {

constexpr const char* kUnigramHint =
    "convert it: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes tokenizer.json";
constexpr std::size_t kPiecesMax = 10'000'000;
constexpr std::size_t kPieceBytesMax = 512;

/// The fields of one protobuf message, one after another.
class Message {
 public:
  struct Field {
    uint64_t number = 0;
    uint64_t value = 0;     ///< for varint and fixed fields
    std::string_view text;  ///< for length-delimited fields
    std::size_t at = 0;     ///< offset in the message
    enum class Wire { Varint, Fixed64, Bytes, Fixed32 } wire = Wire::Varint;
  };

  explicit Message(std::string_view bytes) : bytes_(bytes) {}
  std::size_t at() const { return at_; }
  bool done() const { return at_ >= bytes_.size(); }

  /// nullopt if the bytes from at() on are not protobuf.
  std::optional<Field> next() {
    Field field{.at = at_};
    const auto tag = varint();
    if (!tag || *tag >> 3 == 0) return std::nullopt;
    field.number = *tag >> 3;
    switch (*tag & 7) {
      case 0: {
        const auto value = varint();
        if (!value) return std::nullopt;
        field.value = *value;
        return field;
      }
      case 1:
        field.wire = Field::Wire::Fixed64;
        return fixed(field, 8);
      case 5:
        field.wire = Field::Wire::Fixed32;
        return fixed(field, 4);
      case 2: {
        const auto length = varint();
        if (!length || *length > bytes_.size() - at_) return std::nullopt;
        field.wire = Field::Wire::Bytes;
        field.text = bytes_.substr(at_, *length);
        at_ += *length;
        return field;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<uint64_t> varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) return std::nullopt;
      const auto byte = static_cast<uint8_t>(bytes_[at_++]);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }
  std::optional<Field> fixed(Field& field, std::size_t bytes) {
    if (bytes_.size() - at_ < bytes) return std::nullopt;
    std::memcpy(&field.value, bytes_.data() + at_, bytes);  // little-endian, like this machine
    at_ += bytes;
    return field;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

using Wire = Message::Field::Wire;

class ProtoReader {
 public:
  explicit ProtoReader(const std::string& path) : path_(path) {}

  Result<SentencePieceModel> read(std::string_view bytes) {
    DSJ_TRY_STATUS(each(bytes, "", [&](const Message::Field& field) -> Status {
      if (field.wire != Wire::Bytes) return {};
      if (field.number == 1) return piece(field);
      if (field.number == 2) return trainer(field.text);
      if (field.number == 3) return normalizer(field.text);
      return {};
    }));
    if (model_.pieces.empty()) return refuse("holds no pieces: it is not a SentencePiece model");
    if (type_ != 2) {
      static constexpr const char* kNames[] = {"", "Unigram", "BPE", "Word", "Char"};
      return refuse(std::string("the model is ") + (type_ <= 4 ? kNames[type_] : "of a new kind") +
                    ", only BPE is built here");
    }
    const auto count = static_cast<int32_t>(model_.pieces.size());
    for (const int32_t id : {model_.unk_id, model_.bos_id, model_.eos_id, model_.pad_id}) {
      if (id < -1 || id >= count) return refuse("names a special id " + std::to_string(id));
    }
    return std::move(model_);
  }

 private:
  std::unexpected<Error> refuse(std::string what) const {
    return bad_input(std::move(what), path_, kUnigramHint);
  }

  template <typename Take>
  Status each(std::string_view bytes, const char* what, Take take) const {
    Message message(bytes);
    while (!message.done()) {
      const auto field = message.next();
      if (!field) {
        return refuse(std::string(what) + "is not a protobuf from byte " +
                      std::to_string(message.at()) + " on");
      }
      DSJ_TRY_STATUS(take(*field));
    }
    return {};
  }

  Status piece(const Message::Field& whole) {
    SentencePieceModel::Piece piece;
    if (model_.pieces.size() >= kPiecesMax) return refuse("holds too many pieces");
    DSJ_TRY_STATUS(each(whole.text, "a piece ", [&](const Message::Field& field) -> Status {
      if (field.number == 1 && field.wire == Wire::Bytes) piece.text = field.text;
      if (field.number == 2 && field.wire == Wire::Fixed32) {
        const auto bits = static_cast<uint32_t>(field.value);
        std::memcpy(&piece.score, &bits, sizeof bits);
      }
      if (field.number == 3 && field.wire == Wire::Varint) {
        if (field.value < 1 || field.value > 6) return refuse("a piece of an unknown type");
        piece.type = static_cast<SentencePieceModel::Type>(field.value);
      }
      return {};
    }));
    if (piece.text.empty() || find_invalid_utf8(piece.text) || !(piece.score == piece.score)) {
      return refuse("piece " + std::to_string(model_.pieces.size()) +
                    " is not a text with a score");
    }
    // add_merges() looks up all ways to cut a piece, which takes too long for a long piece.
    if (piece.text.size() > kPieceBytesMax) {
      return refuse("piece " + std::to_string(model_.pieces.size()) + " has more than " +
                    std::to_string(kPieceBytesMax) + " bytes");
    }
    if (piece.type == SentencePieceModel::Type::Unused) {
      return refuse("piece '" + piece.text + "' is of the type UNUSED, which is not built");
    }
    model_.pieces.push_back(std::move(piece));
    return {};
  }

  Status trainer(std::string_view bytes) {
    return each(bytes, "the trainer's settings ", [&](const Message::Field& field) -> Status {
      if (field.wire != Wire::Varint) return {};
      const auto id = static_cast<int32_t>(static_cast<int64_t>(field.value));
      if (field.number == 3) type_ = field.value;
      if (field.number == 24 && field.value != 0) return refuse("treats white space as a suffix");
      if (field.number == 35) model_.byte_fallback = field.value != 0;
      if (field.number == 40) model_.unk_id = id;
      if (field.number == 41) model_.bos_id = id;
      if (field.number == 42) model_.eos_id = id;
      if (field.number == 43) model_.pad_id = id;
      return {};
    });
  }

  Status normalizer(std::string_view bytes) {
    bool removes_spaces = true;
    DSJ_TRY_STATUS(each(bytes, "the normalizer ", [&](const Message::Field& field) -> Status {
      if (field.number == 2 && field.wire == Wire::Bytes && !field.text.empty())
        return refuse("its normalizer changes characters (a precompiled map): not built");
      if (field.wire != Wire::Varint) return {};
      if (field.number == 3) model_.add_dummy_prefix = field.value != 0;
      if (field.number == 4) removes_spaces = field.value != 0;
      if (field.number == 5 && field.value == 0) return refuse("does not escape white space");
      return {};
    }));
    if (removes_spaces) return refuse("its normalizer removes extra white space: not built");
    return {};
  }

  const std::string& path_;
  SentencePieceModel model_;
  uint64_t type_ = 1;  // SentencePiece's default: Unigram
};

}  // namespace

Result<SentencePieceModel> parse_sentencepiece_model(std::string_view bytes,
                                                     const std::string& path) {
  return ProtoReader(path).read(bytes);
}

}  // namespace dsj::data
