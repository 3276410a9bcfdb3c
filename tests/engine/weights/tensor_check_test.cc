#include "engine/weights/tensor_check.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "common/files/memory_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "job/layout/model_config.h"

namespace dsj::weights {
namespace {

using Shape = std::vector<int64_t>;

/// Two parameters, and an adapter that no file of a base model has.
std::vector<layout::UnitSpec> units() {
  return {{.name = "embedding", .parameters = {{.name = "model.embed.weight", .shape = {4, 2}}}},
          {.name = "head",
           .parameters = {{.name = "head.weight", .shape = {3}},
                          {.name = "head.lora_A.weight", .shape = {1, 3}}}}};
}

Status check(Files& files, const std::vector<TensorDeclaration>& tensors) {
  auto writer = SafetensorsWriter::create(files, "/model.safetensors", tensors);
  EXPECT_TRUE(writer);
  for (const auto& tensor : tensors)
    EXPECT_TRUE(writer->append(tensor.name, std::vector<float>(size_t(tensor.elements()), 1)));
  EXPECT_TRUE(writer->finish());
  const auto source = WeightSource::open(files, "/");
  EXPECT_TRUE(source) << source.error().to_string();
  return check_tensors(*source, units());
}

TEST(TensorCheck, AModelIsWholeWithOrWithoutItsPrefix) {
  MemoryFiles files;
  EXPECT_TRUE(check(files, {{"model.embed.weight", DType::F32, Shape{4, 2}},
                            {"head.weight", DType::BF16, Shape{3}}}));
  EXPECT_TRUE(check(
      files, {{"embed.weight", DType::F32, Shape{4, 2}}, {"head.weight", DType::F16, Shape{3}}}));
}

TEST(TensorCheck, AMissingTensorAndAnotherShapeAreNamed) {
  MemoryFiles files;
  const Status missing = check(files, {{"head.weight", DType::F32, Shape{3}}});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "the checkpoint has no tensor \"model.embed.weight\"");
  EXPECT_EQ(missing.error().where, "/model.safetensors");
  const Status shape = check(files, {{"model.embed.weight", DType::F32, Shape{2, 4}},
                                     {"head.weight", DType::F32, Shape{3}}});
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().message,
            "tensor \"model.embed.weight\" has shape [2,4], config.json asks for [4,2]");
}

TEST(TensorCheck, ATypeThatIsNoWeightsIsNamed) {
  MemoryFiles files;
  const std::string header =
      R"({"model.embed.weight":{"dtype":"I8","shape":[4,2],"data_offsets":[0,8]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  ASSERT_TRUE(files.write_atomically("/model.safetensors", bytes + header + std::string(8, '\1')));
  const auto source = WeightSource::open(files, "/");
  ASSERT_TRUE(source) << source.error().to_string();
  const Status type = check_tensor(*source, "model.embed.weight", {4, 2});
  ASSERT_FALSE(type);
  EXPECT_NE(type.error().message.find("is I8, weights are F32, BF16 or F16"), std::string::npos)
      << type.error().message;
}

/// Whatever is added to a model's files is named, unless every program computes it anew.
TEST(TensorCheck, TensorsThatConfigJsonDoesNotDescribeAreNamed) {
  auto config = nlohmann::json::parse(R"({"model_type": "llama", "vocab_size": 12, "hidden_size": 4,
      "intermediate_size": 4, "num_hidden_layers": 2, "num_attention_heads": 1})");
  const auto model = layout::model_config_from_json(config, "config.json").value();
  const auto unread = [&](const std::vector<TensorDeclaration>& more, bool bare = false) {
    std::vector<TensorDeclaration> tensors = more;
    for (const auto& unit : layout::units_of(model))
      for (const auto& parameter : unit.parameters)
        tensors.push_back({bare && parameter.name.starts_with("model.") ? parameter.name.substr(6)
                                                                        : parameter.name,
                           DType::F32, parameter.shape});
    MemoryFiles files;
    auto writer = SafetensorsWriter::create(files, "/model.safetensors", tensors);
    EXPECT_TRUE(writer);
    for (const auto& tensor : tensors)
      EXPECT_TRUE(writer->append(tensor.name, std::vector<float>(size_t(tensor.elements()), 1)));
    EXPECT_TRUE(writer->finish());
    return unread_tensors(WeightSource::open(files, "/").value(), model);
  };
  const auto bias = [](int layer) {
    return TensorDeclaration{"model.layers." + std::to_string(layer) + ".self_attn.q_proj.bias",
                             DType::F32, Shape{4}};
  };
  const std::string of = " not read, because config.json describes a model without ";
  EXPECT_EQ(unread({}), "");
  EXPECT_EQ(unread({}, /*bare=*/true), "");
  EXPECT_EQ(unread({{"model.layers.0.self_attn.rotary_emb.inv_freq", DType::F32, Shape{2}},
                    {"model.layers.1.attn.bias", DType::F32, Shape{1, 1, 4, 4}},
                    {"model.layers.1.attn.masked_bias", DType::F32, Shape{1}}}),
            "");
  EXPECT_EQ(unread({bias(1)}),
            "1 tensor of the files is" + of + "it: model.layers.1.self_attn.q_proj.bias");
  EXPECT_EQ(unread({bias(0), bias(1), {"v_head.weight", DType::F32, Shape{4}}}),
            "3 tensors of the files are" + of +
                "them: model.layers.*.self_attn.q_proj.bias (2), v_head.weight");
  EXPECT_EQ(unread({{"model.layers.2.mlp.up_proj.weight", DType::F32, Shape{4, 4}}}),
            "1 tensor of the files is" + of + "it: model.layers.2.mlp.up_proj.weight");
  std::vector<TensorDeclaration> many;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g"})
    many.push_back({name, DType::F32, Shape{1}});
  EXPECT_EQ(unread(many), "7 tensors of the files are" + of + "them: a, b, c, d, e, f and others");
}

/// Each part of the ranks finds what differs in its rows, and nothing else.
TEST(TensorCheck, ATiedModelsOutputLayerIsTheEmbeddingOrItIsRefused) {
  constexpr int64_t kRows = 12, kColumns = 2;
  auto config = nlohmann::json::parse(R"({"model_type": "qwen2", "vocab_size": 12, "hidden_size": 2,
      "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
      "num_key_value_heads": 1, "tie_word_embeddings": true})");
  std::vector<float> values(kRows * kColumns);
  std::iota(values.begin(), values.end(), 1.0f);
  for (const bool tied : {true, false}) {
    config["tie_word_embeddings"] = tied;
    const auto model = layout::model_config_from_json(config, "config.json");
    ASSERT_TRUE(model) << model.error().to_string();
    for (int64_t other = -1; other < std::ssize(values); ++other) {
      for (const int64_t rows : {kRows, kRows - 1}) {
        MemoryFiles files;
        std::vector<float> head(values.begin(), values.begin() + rows * kColumns);
        if (other >= 0 && other < std::ssize(head)) head[static_cast<size_t>(other)] = -1;
        auto writer = SafetensorsWriter::create(
            files, "/model.safetensors",
            {{"lm_head.weight", DType::F32, Shape{rows, kColumns}},
             {"model.embed_tokens.weight", DType::F32, Shape{kRows, kColumns}}});
        ASSERT_TRUE(writer && writer->append("lm_head.weight", head) &&
                    writer->append("model.embed_tokens.weight", values) && writer->finish());
        const auto source = WeightSource::open(files, "/");
        ASSERT_TRUE(source) << source.error().to_string();
        for (int parts = 1; parts <= 3; ++parts) {
          for (int part = 0; part < parts; ++part) {
            const Status checked = check_tied_head(*source, *model, part, parts);
            const int64_t of_part = kRows * kColumns / parts;
            const bool here = other >= 0 && other / of_part == part;
            EXPECT_EQ(bool(checked), !tied || (rows == kRows && !here)) << other << " " << part;
            if (checked) continue;
            EXPECT_EQ(checked.error().message,
                      "tie_word_embeddings makes \"model.embed_tokens.weight\" the output layer, "
                      "but the files have \"lm_head.weight\" with other values");
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace dsj::weights
