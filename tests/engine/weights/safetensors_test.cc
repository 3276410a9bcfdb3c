#include "engine/weights/formats/safetensors.h"

#include <gtest/gtest.h>

#include <random>

namespace dsj::weights {
namespace {

constexpr int64_t kNoData = 0;

Result<SafetensorsHeader> parse(const std::string& json, int64_t data_bytes) {
  return parse_safetensors_header(json, 8 + int64_t(json.size()) + data_bytes, "w.safetensors");
}

TEST(SafetensorsHeader, TensorsInFileOrderWithTheirBytes) {
  const auto header = parse(
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
          "__metadata__":{"format":"pt"},
          "a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},
          "none":{"dtype":"F32","shape":[0,7],"data_offsets":[4,4]}}   )",
      16);
  ASSERT_TRUE(header) << header.error().to_string();
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_EQ(header->tensors[2].elements, 6);
  EXPECT_EQ(header->tensors[2].begin, header->tensors[0].begin + 4);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

struct Bad {
  const char* json;
  int64_t data_bytes;
  const char* message;
};

class BadHeader : public testing::TestWithParam<Bad> {};

TEST_P(BadHeader, IsRefusedWithItsReason) {
  const auto header = parse(GetParam().json, GetParam().data_bytes);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().kind, ErrorKind::BadInput);
  EXPECT_EQ(header.error().where, "w.safetensors");
  EXPECT_NE(header.error().message.find(GetParam().message), std::string::npos)
      << header.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    , BadHeader,
    testing::Values(
        Bad{"", kNoData, "no JSON object"}, Bad{"[]", kNoData, "no JSON object"},
        Bad{" {}", kNoData, "no JSON object"}, Bad{"{", kNoData, "no JSON at byte"},
        Bad{"{}{}", kNoData, "no JSON at byte"},
        Bad{R"({"a":1})", kNoData, "a number is not allowed here"},
        Bad{R"({"a":{}})", kNoData, "dtype, shape and data_offsets are expected"},
        Bad{R"({"a":{"dtype":"F32","shape":[1]}})", 4,
            "dtype, shape and data_offsets are expected"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4, "unknown field"},
        Bad{R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4, "twice"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
               "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
            4, "\"a\" is listed twice"},
        Bad{R"({"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}})", 4,
            "dtype \"Q4\" is not known"},
        Bad{R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4,
            "an array is not allowed"},
        Bad{R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4,
            "an array is not allowed"},
        Bad{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative"},
        Bad{R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "fractional"},
        Bad{R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
            "too large"},
        Bad{R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4,
            "too large"},
        Bad{R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}})", 4,
            "too large"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "must be [begin, end]"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "must be [begin, end]"},
        Bad{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
            "4 bytes are announced, its shape and dtype take 8"},
        Bad{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4,
            "end at 8 of the data, the file has 4"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
               "b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
            6, "begins at byte"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
               "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
            12, "begins at byte"},
        Bad{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "the tensors end at"},
        Bad{R"({"__metadata__":{"a":1}})", kNoData, "a number is not allowed here"},
        Bad{R"({"__metadata__":{"a":"1","a":"2"}})", kNoData, "metadata \"a\" is listed twice"}));

TEST(SafetensorsHeader, LengthIsCheckedBeforeAnythingIsRead) {
  const std::string huge(8, '\xff'), hundred = std::string("\x64\0\0\0\0\0\0\0", 8);
  EXPECT_FALSE(safetensors_header_bytes(huge, 1000, "w"));
  EXPECT_FALSE(safetensors_header_bytes("1234567", 7, "w"));
  EXPECT_FALSE(safetensors_header_bytes(hundred, 107, "w"));
  EXPECT_EQ(safetensors_header_bytes(hundred, 108, "w"), 100);
}

/// Whatever the bytes are: a header whose tensors lie inside the file, or an error.
TEST(SafetensorsHeader, MutatedHeadersNeverLeaveTheFile) {
  const std::string good =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})";
  const std::string alphabet = "{}[]:,\"0123456789-.eabdtypeshapFB\\un\xff\x01 ";
  std::mt19937 random(3);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string json = good;
    for (uint32_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % json.size();
      switch (random() % 3) {
        case 0:
          json[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          json.erase(at, 1 + random() % 4);
          break;
        default:
          json.insert(at, json.substr(random() % json.size(), random() % 12));
          break;
      }
    }
    const int64_t file_bytes = 8 + int64_t(json.size()) + 34;
    const auto header = parse_safetensors_header(json, file_bytes, "w");
    if (!header) continue;
    ++accepted;
    for (const TensorInfo& tensor : header->tensors) {
      ASSERT_GE(tensor.begin, 8 + int64_t(json.size()));
      ASSERT_LE(tensor.begin + tensor.bytes(), file_bytes);
    }
  }
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace dsj::weights
