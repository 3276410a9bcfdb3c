// Files that are written here against those of llama.cpp's own converter, and against the files that a
// real llama.cpp has run (fixtures/gguf_oracle.json, made by tests/oracle/gguf_oracle.py).
#include "engine/gguf/export.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/files/memory_files.h"
#include "common/files/posix_files.h"
#include "engine/gguf/architectures.h"
#include "engine/gguf/model_keys.h"
#include "job/layout/families/families.h"
#include "job/layout/model_config.h"
#include "tests/engine/gguf/read_gguf.h"
#include "tests/engine/support/fixtures.h"

namespace dsj::gguf {
namespace {

using nlohmann::json;
using testing_support::crc_of;
using testing_support::read_gguf;

const json& gguf_oracle() {
  static const json root = json::parse(
      *PosixFiles().read_all(DSJ_SOURCE_DIR "/tests/engine/gguf/fixtures/gguf_oracle.json"));
  return root;
}

std::string test_file(const std::string& name) {
  return *PosixFiles().read_all(DSJ_SOURCE_DIR "/tests/" + name);
}

/// A model directory /m, with changes of its config.json; null removes a field.
MemoryFiles model_of(const std::string& fixture, const json& changes = json::object()) {
  MemoryFiles files;
  EXPECT_TRUE(files.make_dirs("/m"));
  json config = json::parse(test_file(fixture + "/config.json"));
  for (const auto& [key, value] : changes.items()) config[key] = value;
  EXPECT_TRUE(files.write_atomically("/m/config.json", config.dump()));
  EXPECT_TRUE(
      files.write_atomically("/m/model.safetensors", test_file(fixture + "/model.safetensors")));
  return files;
}

Result<Exported> export_as(MemoryFiles& files, std::optional<Type> type) {
  return export_gguf(files, {.model = "/m", .output = "/m.gguf", .type = type, .name = "Tiny"});
}

const std::map<std::string, Type> kGgufTypes = {
    {"f32", Type::F32}, {"f16", Type::F16}, {"bf16", Type::BF16}, {"q8_0", Type::Q8_0}};

/// Keys that only the other converter writes, with what llama.cpp takes without them, or because it
/// does not read them.
bool is_left_out(const std::string& key) {
  static const std::set<std::string> kLeftOut = {
      "rope.scaling.yarn_attn_factor",  // not read; ours is rope.scaling.attn_factor
      "rope.scaling.yarn_beta_fast",    // others than its own are refused here
      "rope.scaling.yarn_beta_slow",
      "attention.layer_norm_rms_epsilon",  // of a model with LayerNorm
      "use_parallel_residual",             // StableLM's shows in its tensors
  };
  return kLeftOut.contains(key.substr(key.find('.') + 1));
}

/// Keys whose value the other converter takes from elsewhere, with its reason.
bool differs(const std::string& model, const std::string& key) {
  static const std::set<std::pair<std::string, std::string>> kDiffers = {
      // It takes the sizes of the published Phi-2.
      {"phi", "phi2.attention.head_count_kv"},
      {"phi", "phi2.feed_forward_length"},
      {"gpt-bigcode", "starcoder.feed_forward_length"},  // and StarCoder's
      // Without scaling nothing reads it.
      {"phi4-mini", "phi3.rope.scaling.original_context_length"},
  };
  return kDiffers.contains({model, key});
}

TEST(GgufExport, EqualsTheConverterOfLlamaCpp) {
  int compared = 0;
  for (const auto& [name, record] : gguf_oracle()["models"].items()) {
    for (const auto& [outtype, type] : kGgufTypes) {
      if (!record.contains(outtype)) continue;
      SCOPED_TRACE(name + " " + outtype);
      MemoryFiles files = model_of(record["fixture"], record["config"]);
      const auto done = export_as(files, type);
      ASSERT_TRUE(done) << done.error().to_string();
      const auto file = read_gguf(*files.read_all("/m.gguf"));
      json tensors = json::object();
      for (const auto& [tensor, read] : file.tensors)
        tensors[tensor] = {read.type, read.shape, crc_of(read.bytes)};
      EXPECT_EQ(tensors, record[outtype]["tensors"]);
      EXPECT_EQ(done->tensors, static_cast<int64_t>(tensors.size()));
      for (const auto& [key, value] : record[outtype]["keys"].items()) {
        const bool is_none = key.ends_with("rope.scaling.type") && value == "none";
        if (is_left_out(key) || is_none || differs(name, key) || key.starts_with("tokenizer."))
          continue;
        EXPECT_TRUE(file.keys.contains(key)) << key;
        if (file.keys.contains(key) && value.is_number_float()) {
          EXPECT_EQ(file.keys[key].get<float>(), value.get<float>()) << key;
        } else if (file.keys.contains(key)) {
          EXPECT_EQ(file.keys[key], value) << key;
        }
      }
      ++compared;
    }
  }
  EXPECT_GE(compared, 60);
}

// The oracle has run these very bytes: llama.cpp's logits were transformers', and so were its tokens.
TEST(GgufExport, WritesTheFilesThatLlamaCppHasRun) {
  for (const auto& [name, record] : gguf_oracle()["models"].items()) {
    MemoryFiles files = model_of(record["fixture"], record["config"]);
    const auto done = export_as(files, Type::F32);
    ASSERT_TRUE(done) << name << ": " << done.error().to_string();
    EXPECT_EQ(crc_of(*files.read_all("/m.gguf")), record["llama_cpp"]["crc32"])
        << name
        << ": the file is another one; scripts/oracle.sh gguf shows whether llama.cpp agrees";
  }
}

TEST(GgufExport, EveryArchitectureHasBeenRun) {
  std::set<std::string> run;
  for (const auto& [name, record] : gguf_oracle()["models"].items()) {
    json config = json::parse(test_file(record["fixture"].get<std::string>() + "/config.json"));
    run.insert(config["model_type"].get<std::string>());
  }
  for (const Architecture& one : architectures()) {
    EXPECT_NE(layout::family_of(one.model_type), nullptr) << one.model_type;
    // Without a window Ministral is Mistral.
    if (std::string(one.model_type) != "ministral") {
      EXPECT_TRUE(run.contains(one.model_type)) << one.model_type;
    }
  }
}

/// A type that is not in the table has no file, whatever its model.
TEST(GgufExport, EveryFamilyIsInTheTableOrRefusedByName) {
  std::set<std::string> known, refused;
  for (const Architecture& one : architectures()) known.insert(one.model_type);
  for (const layout::Family& family : layout::families()) {
    const layout::ModelConfig config{.model_type = family.model_type};
    const auto found = architecture_of(config, "/m/config.json");
    if (known.contains(family.model_type)) {
      if (found) {
        EXPECT_STREQ((*found)->model_type, family.model_type);
      }
      continue;
    }
    ASSERT_FALSE(found) << family.model_type;
    const std::string text = found.error().to_string();
    EXPECT_NE(text.find("model_type \"" + std::string(family.model_type) + "\""), std::string::npos)
        << text;
    EXPECT_NE(text.find("hunyuan_v1_dense"), std::string::npos) << "the known ones: " << text;
  }
  const auto fixtures = PosixFiles().list_dir(DSJ_SOURCE_DIR "/tests/fixtures");
  ASSERT_TRUE(fixtures);
  for (const DirEntry& entry : *fixtures) {
    if (!entry.name.starts_with("tiny-") || entry.name.ends_with(".json")) continue;
    MemoryFiles files = model_of("fixtures/" + entry.name);
    const json config = json::parse(*files.read_all("/m/config.json"));
    const std::string type = config["model_type"];
    if (known.contains(type)) continue;
    const auto done = export_as(files, Type::F32);
    ASSERT_FALSE(done) << entry.name;
    EXPECT_NE(done.error().to_string().find("model_type \"" + type + "\" cannot be exported"),
              std::string::npos)
        << entry.name << ": " << done.error().to_string();
    EXPECT_FALSE(files.exists("/m.gguf").value_or(true)) << entry.name;
    refused.insert(type);
  }
  EXPECT_GE(refused.size(), 30u);
  const std::string page = *PosixFiles().read_all(DSJ_SOURCE_DIR "/docs/models.md");
  const size_t list = page.find("**Models.** ");
  ASSERT_NE(list, std::string::npos);
  std::string named = page.substr(list, page.find("Other types are refused", list) - list);
  for (char& c : named)
    if (c == '\n' || c == ',' || c == '.') c = ' ';
  named += " ";
  for (const layout::Family& family : layout::families())
    EXPECT_EQ(named.find(" " + std::string(family.model_type) + " ") != std::string::npos,
              known.contains(family.model_type))
        << family.model_type << " in docs/models.md";
}

TEST(GgufExport, TakesTheTypeOfTheModelByItself) {
  MemoryFiles files = model_of("fixtures/tiny-llama");
  const auto done = export_gguf(files, {.model = "/m", .output = "/x-{ftype}-{FTYPE}.gguf"});
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(done->path, "/x-bf16-BF16.gguf");  // an fp32 model: the wider range, as the converter
  const auto file = read_gguf(*files.read_all(done->path));
  EXPECT_EQ(file.keys["general.file_type"], 32);
  EXPECT_EQ(file.keys["general.name"], "M");
  EXPECT_EQ(file.tensors.at("blk.0.ffn_up.weight").type, "BF16");
  EXPECT_EQ(file.tensors.at("blk.0.ffn_norm.weight").type, "F32");
}

TEST(GgufExport, SaysWhichMatricesBlocksDoNotFill) {
  MemoryFiles files = model_of("fixtures/tiny-llama");
  const auto done = export_as(files, Type::Q8_0);
  ASSERT_TRUE(done);
  const auto said = [&](const std::string& text) {
    return std::ranges::any_of(done->notes,
                               [&](const std::string& note) { return note.contains(text); });
  };
  EXPECT_TRUE(said("blk.0.ffn_down.weight is F16: its rows of 48 elements"));
  EXPECT_FALSE(said("blk.0.ffn_up.weight"));
}

TEST(GgufExport, SaysWhereAWindowIsLost) {
  MemoryFiles files = model_of("fixtures/tiny-mistral");
  const auto done = export_as(files, Type::F32);
  ASSERT_TRUE(done);
  ASSERT_FALSE(done->notes.empty());
  EXPECT_NE(done->notes[0].find("no sliding window: after 6 tokens"), std::string::npos)
      << done->notes[0];
}

/// The message of a model that is refused; no file is left.
std::string refusal(MemoryFiles files) {
  const auto done = export_as(files, Type::F32);
  EXPECT_FALSE(done);
  EXPECT_FALSE(*files.exists("/m.gguf"));
  EXPECT_FALSE(*files.exists("/m.gguf.tmp"));
  return done ? "" : done.error().to_string();
}

TEST(GgufExport, RefusesWhatLlamaCppWouldComputeOtherwise) {
  const std::tuple<const char*, json, const char*> cases[] = {
      {"fixtures/tiny-gptj", json::object(), "\"gptj\" cannot be exported to GGUF"},
      {"fixtures/tiny-gptj", json::object(), "supported: llama, mistral"},
      {"fixtures/tiny-gemma2", json::object(), "query_pre_attn_scalar"},
      {"fixtures/tiny-gpt2", json::object(), "this scale of attention's scores"},
      {"fixtures/tiny-smollm3", json::object(), "positions in just these layers"},
      {"fixtures/tiny-cohere2", json::object(), "a bias of attention's output"},
      {"fixtures/tiny-ernie4.5", json::object(), "biases of the MLP"},
      {"fixtures/tiny-olmoe", json::object(), "key heads for several queries"},
      {"fixtures/tiny-gpt-neox-sequential", json::object(), "layers without biases"},
      {"fixtures/tiny-qwen3-moe", json::object(), "layers without experts"},
      {"fixtures/tiny-qwen3-moe-balanced", {{"norm_topk_prob", false}}, "unnormalized weights"},
      {"fixtures/tiny-llama-yarn",
       {{"rope_scaling",
         {{"rope_type", "yarn"},
          {"factor", 4.0},
          {"beta_fast", 16},
          {"original_max_position_embeddings", 16}}}},
       "yarn with another ramp"},
      {"fixtures/tiny-llama", {{"hidden_act", "gelu"}}, "this activation"},
      {"fixtures/tiny-qwen2", {{"model_type", "llama2"}}, "llama2"},
  };
  for (const auto& [fixture, changes, message] : cases) {
    const std::string said = refusal(model_of(fixture, changes));
    EXPECT_NE(said.find(message), std::string::npos) << fixture << ": " << said;
    EXPECT_NE(said.find("/m/config.json"), std::string::npos) << said;
  }
}

TEST(GgufExport, RefusesAnAdapterAFileThatIsThereAndMissingWeights) {
  MemoryFiles adapter = model_of("fixtures/tiny-llama");
  ASSERT_TRUE(adapter.write_atomically("/m/adapter_config.json", "{}"));
  EXPECT_NE(refusal(adapter).find("dsj merge --adapter /m"), std::string::npos);

  MemoryFiles there = model_of("fixtures/tiny-llama");
  ASSERT_TRUE(there.write_atomically("/m.gguf", "mine"));
  const auto done = export_as(there, Type::F32);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("already exists"), std::string::npos);
  EXPECT_EQ(*there.read_all("/m.gguf"), "mine");

  const std::string said = refusal(model_of("fixtures/tiny-llama", {{"num_hidden_layers", 3}}));
  EXPECT_NE(said.find("model.layers.2"), std::string::npos) << said;
}

TEST(GgufExport, NamesSizesAsTheConverter) {
  const auto label = [](const std::string& fixture) {
    return size_label(*layout::read_model_config(DSJ_SOURCE_DIR "/tests/" + fixture));
  };
  // By hand: vocabulary 128 x 32; two layers of 2 x 32 x 32 (q, o), 2 x 8 x 32 (k, v), 3 x 48 x 32, 2 x 32; 32.
  // 4096 + 2 (2048 + 512 + 4608 + 64) + 32 = 18592.
  EXPECT_EQ(label("fixtures/tiny-llama"), "19K");
}

}  // namespace
}  // namespace dsj::gguf
