#include "engine/data/files/row_sources.h"

#include <gtest/gtest.h>

#include "common/files/memory_files.h"

namespace dsj::data {
namespace {

using nlohmann::json;
using Paths = std::vector<std::string>;

class RowSources : public testing::Test {
 protected:
  RowSources() {
    for (const char* path :
         {"/d/b.jsonl", "/d/a.jsonl", "/d/README.md", "/d/.hidden", "/s/train-0.jsonl",
          "/s/test-0.jsonl", "/deep/x/1.json", "/deep/y/z/2.json", "/deep/y/n.csv", "/c/x,y.json"})
      write(path, "{}");
  }
  void write(const std::string& path, const std::string& text) {
    EXPECT_TRUE(files_.make_dirs(path_parent(path)));
    EXPECT_TRUE(files_.write_synced(path, text));
  }
  Paths files(const std::string& path, const std::string& dataset = "") {
    const auto found = row_files(files_, path, dataset);
    return found ? *found : Paths{found.error().to_string()};
  }
  std::string refusal(const std::string& path, const std::string& dataset = "") {
    const auto found = row_files(files_, path, dataset);
    EXPECT_FALSE(found) << path;
    return found ? "" : found.error().to_string();
  }
  MemoryFiles files_;
};

TEST_F(RowSources, ResolvesFilesDirectoriesAndPatterns) {
  EXPECT_EQ(files("/d/a.jsonl"), Paths{"/d/a.jsonl"});
  EXPECT_EQ(files("/d/none.jsonl"), Paths{"/d/none.jsonl"});  // its reader reports it
  EXPECT_EQ(files("/d"), (Paths{"/d/a.jsonl", "/d/b.jsonl"}));
  EXPECT_EQ(files("/d/*.jsonl"), (Paths{"/d/a.jsonl", "/d/b.jsonl"}));
  EXPECT_EQ(files("/d/[b]*"), Paths{"/d/b.jsonl"});
  EXPECT_EQ(files("/deep/**/*.json"), (Paths{"/deep/x/1.json", "/deep/y/z/2.json"}));
  EXPECT_EQ(files("/deep/?/*.csv"), Paths{"/deep/y/n.csv"});
}

TEST_F(RowSources, SeveralPathsKeepTheOrderOfTheJob) {
  EXPECT_EQ(files("/d/b.jsonl,/d/a.jsonl"), (Paths{"/d/b.jsonl", "/d/a.jsonl"}));
  EXPECT_EQ(files("/c/x,y.json"), Paths{"/c/x,y.json"});
  const auto sources = row_sources(files_, "/d,/c/x,y.json", "", json());
  ASSERT_TRUE(sources);
  ASSERT_EQ(sources->size(), 2u);
  EXPECT_EQ((*sources)[0].files.size(), 2u);
}

TEST_F(RowSources, DirectoriesSavedByDatasets) {
  write("/saved/dataset_dict.json", R"({"splits": ["test", "train"]})");
  for (const std::string split : {"train", "test"}) {
    write("/saved/" + split + "/state.json",
          R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
    for (const char* name :
         {"data-0.arrow", "data-1.arrow", "cache-123.arrow", "dataset_info.json"})
      write("/saved/" + split + "/" + name, "{}");
  }
  EXPECT_EQ(files("/saved"), (Paths{"/saved/train/data-1.arrow", "/saved/train/data-0.arrow"}));
  EXPECT_EQ(files("/saved/test"), (Paths{"/saved/test/data-1.arrow", "/saved/test/data-0.arrow"}));
  write("/saved/dataset_dict.json", R"({"splits": ["test", "dev"]})");
  EXPECT_NE(refusal("/saved").find("has no split train, but test, dev (name the directory"),
            std::string::npos);
  for (const char* state :
       {R"({"_data_files": 3})", R"({"_data_files": [{}]})", R"({"_data_files": []})", "[",
        R"({"_data_files": [{"filename": 1}]})"}) {
    write("/saved/test/state.json", state);
    EXPECT_NE(refusal("/saved/test").find("/saved/test/state.json"), std::string::npos) << state;
  }
  write("/saved/test/state.json", R"({"_data_files": [{"filename": "gone.arrow"}]})");
  EXPECT_EQ(files("/saved/test"), Paths{"/saved/test/gone.arrow"});  // its reader reports it
}

TEST_F(RowSources, ADirectoryOfTextFiles) {
  for (const char* name : {"/t/b.txt", "/t/a.txt", "/t/LICENSE.txt", "/d/notes.txt"})
    write(name, "x");
  EXPECT_EQ(files("/t"), (Paths{"/t/a.txt", "/t/b.txt"}));
  EXPECT_EQ(files("/d"), (Paths{"/d/a.jsonl", "/d/b.jsonl"})) << "beside rows a text is a note";
}

TEST_F(RowSources, ADataSetOfTheHub) {
  for (const char* name :
       {"README.md", "data/train-00001-of-00002.parquet", "data/train-00000-of-00002.parquet"})
    write(std::string("/hub/") + name, "x");
  EXPECT_EQ(files("/hub"), (Paths{"/hub/data/train-00000-of-00002.parquet",
                                  "/hub/data/train-00001-of-00002.parquet"}));
}

TEST_F(RowSources, AmbiguousPathsAreRefused) {
  EXPECT_NE(refusal("/d/*.csv").find("finds no file"), std::string::npos);
  EXPECT_NE(refusal("/deep").find("name one of its directories: x, y"), std::string::npos);
  EXPECT_NE(refusal("/s").find("several splits: test-0.jsonl, train-0.jsonl"), std::string::npos);
  EXPECT_NE(refusal("/d", "alpaca").find("not a directory with a dataset_info.json"),
            std::string::npos);
}

TEST_F(RowSources, NamesInLlamaFactorysDatasetInfo) {
  write("/lf/one.json", "[]");
  write("/lf/dataset_info.json",
        json{{"one", {{"file_name", "one.json"}}},
             {"two", {{"file_name", "/d"}, {"columns", {{"prompt", "q"}, {"response", "a"}}}}},
             {"hub", {{"hf_hub_url", "x/y"}}},
             {"pairs", {{"file_name", "one.json"}, {"ranking", true}}}}
            .dump());
  EXPECT_EQ(files("/lf", "two, one"), (Paths{"/d/a.jsonl", "/d/b.jsonl", "/lf/one.json"}));
  const auto sources = row_sources(files_, "/lf", "one,two", json());
  ASSERT_TRUE(sources);
  EXPECT_TRUE((*sources)[0].names.empty());
  EXPECT_EQ((*sources)[1].names.own_name("output"), "a");
  EXPECT_NE(refusal("/lf", "on").find("did you mean \"one\""), std::string::npos)
      << refusal("/lf", "on");
  EXPECT_NE(refusal("/lf", "hub").find("nothing is downloaded"), std::string::npos);
  EXPECT_EQ(files("/lf", "pairs"), (Paths{"/lf/one.json"}))
      << "what its rows are is seen when they are read";
  EXPECT_NE(refusal("/lf").find("name those to train on in training.dataset: one, pairs, two"),
            std::string::npos);
}

}  // namespace
}  // namespace dsj::data
