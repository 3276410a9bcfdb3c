// Which files are a checkpoint.
#include "engine/deepspeed/folder.h"

#include <gtest/gtest.h>

#include <map>

#include "common/files/memory_files.h"

namespace dsj::deepspeed::folder_tests {  // the suite has the name of the struct
namespace {

class Folder : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& content = "") {
    ASSERT_TRUE(files_.make_dirs(path_parent(path)));
    ASSERT_TRUE(files_.write_synced(path, content));
  }
  std::string refusal(const std::string& path) {
    const auto found = find_folder(files_, path, false);
    EXPECT_FALSE(found);
    return found ? "" : found.error().to_string();
  }
  MemoryFiles files_;
};

TEST_F(Folder, LatestNamesTheTag) {
  put("/ds/latest", "global_step3\n");
  put("/ds/global_step3/mp_rank_00_model_states.pt");
  for (int rank = 0; rank < 12; ++rank)
    put("/ds/global_step3/bf16_zero_pp_rank_" + std::to_string(rank) +
        "_mp_rank_00_optim_states.pt");
  put("/ds/global_step3/README");
  const auto found = find_folder(files_, "/ds", false);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->path, "/ds/global_step3");
  EXPECT_EQ(found->optims.count, 12u);
  EXPECT_EQ(found->optims.path(10),
            "/ds/global_step3/bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt");
  EXPECT_EQ(found->models.count, 1u);
  EXPECT_EQ(found->models.path(0), "/ds/global_step3/mp_rank_00_model_states.pt");
  EXPECT_TRUE(*is_deepspeed(files_, "/ds"));
  EXPECT_TRUE(*is_deepspeed(files_, "/ds/global_step3"));
  EXPECT_FALSE(*is_deepspeed(files_, "/"));
  EXPECT_FALSE(*is_deepspeed(files_, "/nothing"));
  EXPECT_TRUE(find_folder(files_, "/ds/global_step3", false)) << "the tag itself";
}

TEST_F(Folder, OfBothLatestTheKeyDecides) {
  put("/ds/latest", "plain");
  put("/ds/plain/mp_rank_00_model_states.pt");
  put("/ds/latest_universal", "plain_universal");
  put("/ds/plain_universal/mp_rank_00_model_states.pt");
  put("/ds/plain_universal/zero/optimizer_state.pt");
  EXPECT_EQ(find_folder(files_, "/ds", false)->path, "/ds/plain");
  const auto universal = find_folder(files_, "/ds", true);
  EXPECT_EQ(universal->path, "/ds/plain_universal");
  EXPECT_TRUE(universal->universal);
  ASSERT_TRUE(files_.remove("/ds/latest"));
  EXPECT_EQ(find_folder(files_, "/ds", false)->path, "/ds/plain_universal");
}

/// A rank lists the directory, and tells the others.
TEST_F(Folder, ItsTextDoesNotGrowWithTheRanks) {
  std::map<int, size_t> bytes;
  for (const int ranks : {1, 64, 4096}) {
    const std::string tag = "/\xe4\n" + std::to_string(ranks);  // a path has any bytes
    for (int rank = 0; rank < ranks; ++rank)
      for (const char* what : {"model", "optim"})
        put(tag + "/zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_" + what + "_states.pt");
    const auto found = find_folder(files_, tag, false);
    ASSERT_TRUE(found) << found.error().to_string();
    const std::string text = to_text(*found);
    bytes[ranks] = text.size();
    const auto told = folder_of_text(text);
    EXPECT_EQ(told.path, tag);
    EXPECT_FALSE(told.universal);
    for (const auto& [there, here] :
         {std::pair{told.models, found->models}, {told.optims, found->optims}}) {
      EXPECT_EQ(there.count, static_cast<size_t>(ranks));
      EXPECT_EQ(there.path(there.count - 1), here.path(here.count - 1));
    }
    EXPECT_TRUE(*files_.exists(told.optims.path(told.optims.count - 1)));
  }
  EXPECT_LE(bytes[4096], bytes[1] + 16);
}

TEST_F(Folder, NamesThatDeepSpeedDoesNotWriteAreOtherFiles) {
  put("/ds/mp_rank_00_model_states.pt");
  put("/ds/mp_rank_0_model_states.pt");
  put("/ds/zero_pp_rank_00_mp_rank_00_optim_states.pt");
  const auto found = find_folder(files_, "/ds", false);
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->models.path(0), "/ds/mp_rank_00_model_states.pt");
  EXPECT_EQ(found->optims.count, 0u);
}

TEST_F(Folder, WhatIsNotReadIsNamed) {
  put("/none/file");
  EXPECT_NE(refusal("/none").find("not a DeepSpeed checkpoint"), std::string::npos);
  EXPECT_NE(refusal("/absent").find("does not exist"), std::string::npos);
  put("/gone/latest", "global_step9");
  EXPECT_NE(refusal("/gone").find("names global_step9, which is not there"), std::string::npos);
  put("/out/latest", "../secret");
  EXPECT_NE(refusal("/out").find("does not name a folder beside it"), std::string::npos);
  put("/tp/mp_rank_01_model_states.pt");
  EXPECT_NE(refusal("/tp").find("tensor parallelism"), std::string::npos);
  put("/moe/layer_3_expert_0_mp_rank_00_model_states.pt");
  EXPECT_NE(refusal("/moe").find("experts"), std::string::npos);
  put("/moe2/expp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_NE(refusal("/moe2").find("experts"), std::string::npos);
  put("/nvme/mp_rank_00_model_states.pt");
  put("/nvme/offloaded_tensors/rank00/x");
  EXPECT_NE(refusal("/nvme").find("NVMe"), std::string::npos);
  put("/two/mp_rank_00_model_states.pt");
  put("/two/zero_pp_rank_0_mp_rank_00_optim_states.pt");
  put("/two/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  EXPECT_NE(refusal("/two").find("two runs"), std::string::npos);
  put("/gap/zero_pp_rank_1_mp_rank_00_model_states.pt");
  EXPECT_NE(refusal("/gap").find("the model states of rank 0"), std::string::npos);
}

}  // namespace
}  // namespace dsj::deepspeed::folder_tests
