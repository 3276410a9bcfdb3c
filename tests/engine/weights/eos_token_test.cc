#include "engine/weights/eos_token.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dsj::weights {
namespace {

using nlohmann::json;

const EosToken kEos{"<|im_end|>", 258};

json changed(const char* file, const json& content) {
  return json::parse(with_eos(file, content.dump(), kEos));
}

TEST(EosToken, ConfigsAreAlignedAsTransformersAlignsThem) {
  EXPECT_EQ(changed("config.json", {{"eos_token_id", 256}, {"vocab_size", 300}}),
            (json{{"eos_token_id", 258}, {"vocab_size", 300}}));
  EXPECT_EQ(changed("config.json", {{"eos_token_id", {256, 258}}})["eos_token_id"],
            (json{258, 256}));
  EXPECT_EQ(changed("config.json", json::object())["eos_token_id"], 258);
  EXPECT_EQ(changed("generation_config.json", {{"eos_token_id", 256}, {"top_p", 0.5}}),
            (json{{"eos_token_id", {258, 256}}, {"top_p", 0.5}}));
  EXPECT_EQ(changed("generation_config.json", json::object())["eos_token_id"], json::array({258}));
}

TEST(EosToken, TheTokenizersFilesNameTheText) {
  EXPECT_EQ(changed("tokenizer_config.json", {{"eos_token", {{"content", "</s>"}}}})["eos_token"],
            "<|im_end|>");
  EXPECT_EQ(changed("special_tokens_map.json", {{"eos_token", "</s>"}})["eos_token"], "<|im_end|>");
  EXPECT_EQ(changed("special_tokens_map.json", {{"pad_token", "x"}}), (json{{"pad_token", "x"}}));
}

TEST(EosToken, OtherFilesAndOrderStay) {
  EXPECT_EQ(with_eos("tokenizer.json", "{\"eos_token\": 1}", kEos), "{\"eos_token\": 1}");
  EXPECT_EQ(with_eos("config.json", "[1]", kEos), "[1]");
  const std::string text = with_eos("config.json", R"({"z": 1, "eos_token_id": 2, "a": 3})", kEos);
  EXPECT_LT(text.find("\"z\""), text.find("\"eos_token_id\""));
  EXPECT_LT(text.find("\"eos_token_id\""), text.find("\"a\""));
}

}  // namespace
}  // namespace dsj::weights
