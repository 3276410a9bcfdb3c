#include "engine/weights/weight_source.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "common/files/counting_files.h"
#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/weights/formats/safetensors_writer.h"
#include "tests/support/shared_files.h"

namespace dsj::weights {
namespace {

TEST(WeightSource, RealModelDirectories) {
  const auto models = testing_support::golden_directory() / "models";
  if (!std::filesystem::exists(models)) GTEST_SKIP() << models << " is not there";
  PosixFiles files;
  for (const char* name : {"tiny-qwen2", "tiny-llama", "tiny-gpt2"}) {
    auto source = WeightSource::open(files, models / name);
    ASSERT_TRUE(source) << source.error().to_string();
    EXPECT_EQ(source->dtype(), DType::F32);
    int64_t bytes = 0;
    for (const TensorInfo& tensor : source->tensors()) {
      bytes += tensor.bytes();
      std::vector<float> whole(size_t(tensor.elements), NAN), half(whole.size() / 2, NAN);
      ASSERT_TRUE(source->read(tensor.name, 0, whole));
      ASSERT_TRUE(source->read(tensor.name, tensor.elements - int64_t(half.size()), half));
      EXPECT_TRUE(std::equal(half.rbegin(), half.rend(), whole.rbegin())) << tensor.name;
    }
    EXPECT_GT(bytes, 500'000);
  }
}

std::vector<float> ramp(size_t count, float start) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), start);
  return values;
}

void write_file(Files& files, const std::string& path,
                const std::vector<TensorDeclaration>& tensors) {
  auto writer = SafetensorsWriter::create(files, path, tensors);
  ASSERT_TRUE(writer) << writer.error().to_string();
  for (size_t i = 0; i < tensors.size(); ++i) {
    ASSERT_TRUE(writer->append(tensors[i].name, ramp(size_t(tensors[i].elements()), float(i))));
  }
  ASSERT_TRUE(writer->finish());
}

class WeightSourceFake : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(files_.make_dir("/m")); }
  Error open_error() {
    auto source = WeightSource::open(files_, "/m");
    EXPECT_FALSE(source);
    return source ? Error{} : source.error();
  }
  MemoryFiles files_;
};

/// transformers saves the text part of a published Qwen3.5 as a model of its own, by the names of the
/// whole one.
TEST_F(WeightSourceFake, ATextPartMayHaveTheNamesOfTheWholeModel) {
  write_file(files_, "/m/model.safetensors",
             {{"lm_head.weight", DType::F32, {2}},
              {"model.language_model.norm.weight", DType::F32, {3}},
              {"model.visual.norm.weight", DType::F32, {4}}});
  const auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  ASSERT_NE(source->find("model.norm.weight"), nullptr);
  EXPECT_EQ(source->find("model.norm.weight")->name, "model.language_model.norm.weight");
  std::vector<float> values(3);
  ASSERT_TRUE(source->read("model.norm.weight", 0, values));
  EXPECT_EQ(values, ramp(3, 1));
  EXPECT_EQ(source->find("norm.weight"), nullptr);
  EXPECT_EQ(source->find("transformer.norm.weight"), nullptr);
}

TEST_F(WeightSourceFake, ReadsOnlyTheAskedElements) {
  write_file(files_, "/m/model.safetensors",
             {{"a", DType::F32, {100, 10}}, {"b", DType::BF16, {512}}, {"c", DType::F16, {300}}});
  CountingFiles counting(files_);
  auto source = WeightSource::open(counting, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  const int64_t header = counting.total().bytes_read;
  const int64_t data = 4000 + 1024 + 600;
  EXPECT_EQ(header, (*files_.open_read("/m/model.safetensors"))->size() - data);
  std::vector<float> out(7);
  for (const auto& [name, start, bytes] :
       {std::tuple("a", 0.f, 28), std::tuple("b", 1.f, 14), std::tuple("c", 2.f, 14)}) {
    counting.reset();
    ASSERT_TRUE(source->read(name, 90, out));
    EXPECT_EQ(out, ramp(7, start + 90)) << name;
    EXPECT_EQ(counting.total().bytes_read, bytes) << name;
  }
  EXPECT_EQ(source->find("b")->shape, std::vector<int64_t>{512});
  EXPECT_EQ(source->find("d"), nullptr);
  EXPECT_EQ(source->read("d", 0, out).error().message, "there is no tensor \"d\"");
}

TEST_F(WeightSourceFake, LargeSixteenBitTensorsPassTheStagingBufferInPieces) {
  std::vector<float> values(400'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = float(i % 256) - 128;
  auto writer = SafetensorsWriter::create(files_, "/m/model.safetensors",
                                          {{"a", DType::BF16, {int64_t(values.size())}}});
  ASSERT_TRUE(writer->append("a", values));
  ASSERT_TRUE(writer->finish());
  auto source = WeightSource::open(files_, "/m");
  std::vector<float> out(values.size() - 3);
  ASSERT_TRUE(source->read("a", 3, out));
  EXPECT_TRUE(std::equal(out.begin(), out.end(), values.begin() + 3));
}

TEST_F(WeightSourceFake, ShardsAndTheirIndex) {
  auto writer = ModelWriter::create(files_, "/m",
                                    {{"a", DType::F32, {10}},
                                     {"b", DType::F32, {10}},
                                     {"big", DType::F32, {50}},
                                     {"c", DType::F32, {3}},
                                     {"empty", DType::F32, {0}}},
                                    80);
  ASSERT_TRUE(writer);
  for (const auto& [name, count] :
       {std::pair("a", 10), std::pair("b", 10), std::pair("big", 50), std::pair("c", 3)}) {
    const auto values = ramp(size_t(count), float(name[0]));
    ASSERT_TRUE(writer->append(name, std::span(values).first(2)));
    ASSERT_TRUE(writer->append(name, std::span(values).subspan(2)));
  }
  ASSERT_TRUE(writer->finish());
  std::vector<std::string> names;
  const auto entries = files_.list_dir("/m");
  for (const DirEntry& entry : *entries) names.push_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                       "model-00003-of-00003.safetensors", "model.safetensors.index.json"}));
  auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_EQ(source->tensors().size(), 5u);
  std::vector<float> out(50);
  ASSERT_TRUE(source->read("big", 0, out));
  EXPECT_EQ(out, ramp(50, 'b'));

  ASSERT_TRUE(files_.remove("/m/model-00002-of-00003.safetensors"));
  EXPECT_NE(open_error().message.find("model-00002-of-00003.safetensors, which is not there"),
            std::string::npos);
  write_file(files_, "/m/model-00002-of-00003.safetensors", {{"other", DType::F32, {1}}});
  EXPECT_NE(open_error().message.find("holds tensor \"big\", it does not"), std::string::npos);
  write_file(files_, "/m/model-00002-of-00003.safetensors", {{"a", DType::F32, {1}}});
  EXPECT_NE(open_error().message.find("tensor \"a\" is in"), std::string::npos);
}

TEST_F(WeightSourceFake, NamesWithoutTheModelsPrefixAreFound) {
  write_file(files_, "/m/model.safetensors",
             {{"h.0.ln_1.weight", DType::F32, {3}},
              {"model.norm.weight", DType::F32, {2}},
              {"norm.weight", DType::F32, {4}}});
  auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  std::vector<float> out(3);
  EXPECT_TRUE(source->read("transformer.h.0.ln_1.weight", 0, out));
  EXPECT_EQ(source->find("model.norm.weight")->elements, 2) << "its own name first";
  EXPECT_EQ(source->find("transformer.h.1.ln_1.weight"), nullptr);
}

TEST_F(WeightSourceFake, IndexMayNotLeaveItsDirectory) {
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    ASSERT_TRUE(files_.write_synced("/m/model.safetensors.index.json",
                                    R"({"weight_map":{"a":")" + std::string(name) + "\"}}"));
    EXPECT_NE(open_error().message.find("not the name of a file beside"), std::string::npos)
        << name;
  }
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})"}) {
    ASSERT_TRUE(files_.write_synced("/m/model.safetensors.index.json", text));
    EXPECT_EQ(open_error().kind, ErrorKind::BadInput) << text;
  }
}

TEST_F(WeightSourceFake, WhatIsNotThereAndWhatIsNotRead) {
  EXPECT_NE(open_error().message.find("none of model.safetensors"), std::string::npos);
  EXPECT_EQ(WeightSource::open(files_, "/none").error().message,
            "the model directory does not exist");

  const std::string json = R"({"mask":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  const uint64_t length = json.size();
  ASSERT_TRUE(files_.write_synced(
      "/m/model.safetensors",
      std::string(reinterpret_cast<const char*>(&length), 8) + json + std::string(8, '\0')));
  auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  std::vector<float> out(1);
  EXPECT_NE(source->read("mask", 0, out).error().message.find("is I64, weights are"),
            std::string::npos);
}

TEST_F(WeightSourceFake, FilesThatAreNoWeightsAreCalledWhatTheyAre) {
  const std::string lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
  for (const auto& [name, content, says] :
       {std::tuple{"model.safetensors", lfs, "is a Git LFS pointer"},
        std::tuple{"model.safetensors", std::string(), "is empty, expected weights"},
        std::tuple{"pytorch_model.bin", std::string("<!doctype html><html>"), "is an HTML page"},
        std::tuple{"pytorch_model.bin", lfs, "is a Git LFS pointer"},
        std::tuple{"model.safetensors.index.json", lfs, "is a Git LFS pointer"},
        std::tuple{"model.safetensors", std::string("GGUF\x03"), "is a GGUF file"}}) {
    const std::string path = std::string("/m/") + name;
    ASSERT_TRUE(files_.write_synced(path, content));
    const Error error = open_error();
    EXPECT_NE(error.message.find(says), std::string::npos) << name << ": " << error.message;
    EXPECT_FALSE(error.hint.empty());
    EXPECT_EQ(error.where, path);
    ASSERT_TRUE(files_.remove(path));
  }
  ASSERT_TRUE(files_.write_synced("/m/model-Q4_K_M.gguf", "GGUF"));
  EXPECT_NE(open_error().message.find("holds GGUF files"), std::string::npos);
  ASSERT_TRUE(files_.remove("/m/model-Q4_K_M.gguf"));
  ASSERT_TRUE(files_.write_synced("/m/adapter_model.safetensors", "x"));
  EXPECT_NE(open_error().message.find("holds a LoRA adapter"), std::string::npos);
}

TEST_F(WeightSourceFake, QuantisedWeightsAreNamedByTheirKind) {
  for (const auto& [tensor, by] :
       {std::pair{"model.layers.0.self_attn.q_proj.qweight", "GPTQ or AWQ"},
        std::pair{"model.layers.0.mlp.up_proj.weight.absmax", "bitsandbytes, in 4 bits"},
        std::pair{"model.layers.0.mlp.up_proj.weight.quant_state.bitsandbytes__nf4",
                  "bitsandbytes, in 4 bits"},
        std::pair{"model.layers.0.mlp.up_proj.SCB", "bitsandbytes, in 8 bits"}}) {
    write_file(files_, "/m/model.safetensors",
               {{"model.norm.weight", DType::F32, {4}}, {tensor, DType::F32, {4}}});
    const Error error = open_error();
    EXPECT_NE(error.message.find(by), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(tensor), std::string::npos) << error.message;
  }
}

/// transformers takes such files, and so does it where the head has been moved to the embedding.
TEST_F(WeightSourceFake, ATiedModelsFileMayHoldItsHeadAlone) {
  const auto holds = [&](const char* tied, const char* tensor) {
    const std::string config = std::string(R"({"model_type": "llama", "vocab_size": 2,
        "hidden_size": 2, "intermediate_size": 4, "num_hidden_layers": 1,
        "num_attention_heads": 1, "tie_word_embeddings": )") +
                               tied + "}";
    EXPECT_TRUE(files_.write_synced("/m/config.json", config));
    write_file(files_, "/m/model.safetensors", {{tensor, DType::F32, {2, 2}}});
    const auto source = WeightSource::open(files_, "/m");
    EXPECT_TRUE(source) << source.error().to_string();
    std::vector<float> values(4, NAN);
    return source->find("model.embed_tokens.weight") &&
           source->read("model.embed_tokens.weight", 0, values) && values == ramp(4, 0);
  };
  EXPECT_TRUE(holds("true", "lm_head.weight"));
  EXPECT_FALSE(holds("false", "lm_head.weight"));
  EXPECT_TRUE(holds("true", "model.embed_tokens.weight"));
  EXPECT_TRUE(holds("true", "embed_tokens.weight"));
}

/// Published files of Qwen3.5 hold all experts in two tensors, what others save has three for each.
TEST_F(WeightSourceFake, ExpertsWithATensorEachAreReadAsOne) {
  EXPECT_TRUE(files_.write_synced("/m/config.json", R"({"model_type": "qwen3_5_moe_text",
      "vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1,
      "num_key_value_heads": 1, "head_dim": 8, "num_experts": 3, "num_experts_per_tok": 2,
      "moe_intermediate_size": 2, "shared_expert_intermediate_size": 2})"));
  const std::string experts = "model.layers.0.mlp.experts.";
  std::vector<TensorDeclaration> tensors = {{"model.norm.weight", DType::F32, {4}}};
  for (int expert = 0; expert < 3; ++expert) {
    const std::string one = experts + std::to_string(expert);
    tensors.push_back({one + ".down_proj.weight", DType::F32, {4, 2}});
    tensors.push_back({one + ".gate_proj.weight", DType::F32, {2, 4}});
    tensors.push_back({one + ".up_proj.weight", DType::F32, {2, 4}});
  }
  write_file(files_, "/m/model.safetensors", tensors);
  const auto source = WeightSource::open(files_, "/m");
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_EQ(source->tensors().size(), 3u);
  const TensorInfo* up = source->find(experts + "gate_up_proj");
  ASSERT_TRUE(up);
  EXPECT_EQ(up->shape, (std::vector<int64_t>{3, 4, 4}));
  EXPECT_EQ(source->find(experts + "down_proj")->shape, (std::vector<int64_t>{3, 4, 2}));

  // The file's tensor t holds t, t + 1, ...
  std::vector<float> want_up, want_down;
  for (int expert = 0; expert < 3; ++expert) {
    const auto first = static_cast<float>(1 + 3 * expert);
    for (const auto& [part, out] : {std::pair{first + 1, &want_up}, std::pair{first + 2, &want_up},
                                    std::pair{first, &want_down}}) {
      const auto values = ramp(8, part);
      out->insert(out->end(), values.begin(), values.end());
    }
  }
  for (const auto& [name, want] :
       {std::pair{"gate_up_proj", want_up}, std::pair{"down_proj", want_down}}) {
    for (size_t first = 0; first < want.size(); first += 5) {
      for (size_t count = 0; first + count <= want.size(); count += 3) {
        std::vector<float> values(count, NAN);
        ASSERT_TRUE(source->read(experts + name, static_cast<int64_t>(first), values));
        EXPECT_TRUE(std::equal(values.begin(), values.end(), want.begin() + first)) << name;
      }
    }
  }

  // Without one of them the tensor is not there.
  tensors.pop_back();
  write_file(files_, "/m/model.safetensors", tensors);
  const auto lacks = WeightSource::open(files_, "/m");
  ASSERT_TRUE(lacks);
  EXPECT_EQ(lacks->find(experts + "gate_up_proj"), nullptr);
  EXPECT_NE(lacks->find(experts + "down_proj"), nullptr);
}

TEST_F(WeightSourceFake, EveryTruncationIsRefused) {
  write_file(files_, "/m/model.safetensors", {{"a", DType::F32, {2}}});
  const std::string whole = *files_.read_all("/m/model.safetensors");
  for (size_t length = 0; length < whole.size(); ++length) {
    ASSERT_TRUE(files_.write_synced("/m/model.safetensors", whole.substr(0, length)));
    EXPECT_EQ(open_error().kind, ErrorKind::BadInput) << length;
  }
}

}  // namespace
}  // namespace dsj::weights
