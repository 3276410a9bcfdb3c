#include "engine/data/text/unicode.h"

#include <gtest/gtest.h>

#include "engine/data/tokenizer/byte_alphabet.h"

namespace dsj::data {
namespace {

TEST(Unicode, FindsTheFirstBadByte) {
  EXPECT_EQ(find_invalid_utf8("caf\u00e9 \U0001F600"), std::nullopt);
  EXPECT_EQ(find_invalid_utf8("ab\xFFz"), 2u);
  EXPECT_EQ(find_invalid_utf8("\xC0\x80"), 0u);          // overlong
  EXPECT_EQ(find_invalid_utf8("a\xED\xA0\x80"), 1u);     // a surrogate
  EXPECT_EQ(find_invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
  EXPECT_EQ(find_invalid_utf8("x\xE2\x82"), 1u);         // cut short
}

TEST(Unicode, EachIllFormedPartBecomesOneReplacement) {
  EXPECT_EQ(to_valid_utf8("a\xE2\x82z"), "a\uFFFDz");
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"), "\uFFFD");
  EXPECT_EQ(to_valid_utf8("caf\u00e9"), "caf\u00e9");
}

TEST(Unicode, CodePointsAreReadForwardsAndBackwards) {
  const std::string text = "a\u00e9\u20ac\U0001F600";
  std::vector<char32_t> forward, backward;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    forward.push_back(c.value);
    at += c.length;
  }
  for (std::size_t end = text.size(); end > 0;) {
    const CodePoint c = code_point_before(text, end);
    backward.insert(backward.begin(), c.value);
    end -= c.length;
  }
  EXPECT_EQ(forward, (std::vector<char32_t>{'a', 0xE9, 0x20AC, 0x1F600}));
  EXPECT_EQ(backward, forward);
}

std::string nfc(std::string_view text, NormalTables tables) {
  return to_normal_form(text, NormalForm::Nfc, tables);
}

TEST(Unicode, NfcByBothTables) {
  for (const NormalTables tables : {NormalTables::Unicode9, NormalTables::Current}) {
    EXPECT_EQ(nfc("cafe\u0301", tables), "caf\u00e9");
    EXPECT_EQ(nfc("\u1112\u1161\u11ab", tables), "\ud55c");
  }
  // U+1AC4 came with Unicode 14, class 220: it sorts before U+0301 only if the tables have it.
  EXPECT_EQ(nfc("x\u0301\u1ac4", NormalTables::Current), "x\u1ac4\u0301");
  EXPECT_EQ(nfc("x\u0301\u1ac4", NormalTables::Unicode9), "x\u0301\u1ac4");
  EXPECT_EQ(nfc("\U00011935\U00011930", NormalTables::Current), "\U00011938");
  EXPECT_EQ(nfc("\U00011935\U00011930", NormalTables::Unicode9), "\U00011935\U00011930");
}

TEST(Unicode, TheFourNormalForms) {
  const std::string text = "\u00e9\ufb01\u00a0\u1e9b\u0323";
  const auto form = [&](NormalForm wanted) {
    return to_normal_form(text, wanted, NormalTables::Unicode9);
  };
  EXPECT_EQ(form(NormalForm::Nfc), "\u00e9\ufb01\u00a0\u1e9b\u0323");
  EXPECT_EQ(form(NormalForm::Nfd), "e\u0301\ufb01\u00a0\u017f\u0323\u0307");
  EXPECT_EQ(form(NormalForm::Nfkc), "\u00e9fi \u1e69");
  EXPECT_EQ(form(NormalForm::Nfkd), "e\u0301fi s\u0323\u0307");
}

TEST(Unicode, NewerCharactersAreReplacedByOlderOnesOfTheSameLength) {
  // A pink heart (Unicode 15, So), an ideograph of extension I (15.1), a Garay letter (16).
  for (const char* text : {"\U0001FA77", "\U0002EBF0", "\U00010D50", "\uA7CB"}) {
    const std::string known = as_unicode14(text);
    EXPECT_EQ(known.size(), std::string(text).size());
    EXPECT_NE(known, text);
    EXPECT_EQ(as_unicode14(known), "");
  }
  EXPECT_EQ(as_unicode14("caf\u00e9 \u4e2d \U0001F600"), "");
}

TEST(Unicode, ClassesEqualThoseOfEachLibrary) {
  EXPECT_TRUE(is_numeric('7') && is_numeric(0xBD) && is_numeric(0x11DE0) && !is_numeric('a'));
  EXPECT_TRUE(is_punctuation('$') && is_punctuation(0x3002) && is_punctuation(0x166D));
  EXPECT_FALSE(is_punctuation(0x20AC) || is_punctuation(0x2E43) || is_punctuation('a'));
  EXPECT_TRUE(is_accent(0x301) && !is_accent(0x1AC4) && !is_accent('a'));
  EXPECT_TRUE(is_word(0x10D50) && is_word(0x24B6) && !is_word(0x1FA77));
  std::string lower;
  for (const char32_t c : {U'A', U'\u0130', U'\u03A3', U'\U00010D50', U'\uA7CB'})
    append_lower(c, lower);
  EXPECT_EQ(lower, "ai\u0307\u03c3\U00010D70\u0264");
}

TEST(Unicode, WhiteSpaceIsUnicodesProperty) {
  for (const char32_t c : {0x09, 0x20, 0x85, 0xA0, 0x1680, 0x2028, 0x202F, 0x3000}) {
    EXPECT_TRUE(is_white_space(c)) << std::hex << uint32_t(c);
  }
  for (const char32_t c : {0x180E, 0x200B, 0xFEFF, 0x1C, 0x61}) {
    EXPECT_FALSE(is_white_space(c)) << std::hex << uint32_t(c);
  }
}

TEST(ByteAlphabet, EveryByteConvertsBothWays) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
  const std::string text = to_byte_alphabet(bytes);
  EXPECT_FALSE(find_invalid_utf8(text));
  EXPECT_EQ(from_byte_alphabet(text), bytes);
  EXPECT_EQ(to_byte_alphabet(" the\n"), "\u0120the\u010a");
  EXPECT_EQ(from_byte_alphabet("a b"), std::nullopt);  // a space is not in the alphabet
}

}  // namespace
}  // namespace dsj::data
