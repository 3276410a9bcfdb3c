#include "engine/data/files/data_record.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "common/format.h"
#include "engine/data/files/row_sources.h"

namespace dsj::data {
namespace {

using nlohmann::json;

constexpr int64_t kReadBytes = 1 << 20;

constexpr std::array kTokenizerFiles = {"added_tokens.json",     "chat_template.jinja",
                                        "chat_template.json",    "merges.txt",
                                        "qwen.tiktoken",         "special_tokens_map.json",
                                        "tokenizer.json",        "tokenizer.model",
                                        "tokenizer_config.json", "vocab.json"};

bool differs(const json& saved, const json& now, const char* key) {
  return saved.contains(key) && now.contains(key) && saved[key] != now[key];
}

std::string was(const json& saved, const json& now, const char* key) {
  return saved[key].dump() + " then, " + now[key].dump() + " now";
}

}  // namespace

Result<std::string> content_of(Files& files, const std::string& path) {
  DSJ_TRY(const auto file, files.open_read(path));
  const auto state = std::make_unique<XXH3_state_t>();
  XXH3_128bits_reset(state.get());
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kReadBytes, file->size())));
  for (int64_t done = 0; done < file->size(); done += kReadBytes) {
    const auto bytes = static_cast<size_t>(std::min(kReadBytes, file->size() - done));
    DSJ_TRY_STATUS(file->read(done, std::span(piece).first(bytes)));
    XXH3_128bits_update(state.get(), piece.data(), bytes);
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return text::format("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                      static_cast<unsigned long long>(hash.low64));
}

Result<std::string> rows_content(Files& files, const std::string& data_path,
                                 const std::string& dataset) {
  DSJ_TRY(const auto paths, row_files(files, data_path, dataset));
  std::string all;
  for (const std::string& path : paths) {
    DSJ_TRY(const std::string content, content_of(files, path));
    all += (all.empty() ? "" : " ") + content;
  }
  return all;
}

Result<std::string> tokenizer_content(Files& files, const std::string& model_directory) {
  std::string all;
  for (const char* name : kTokenizerFiles) {
    const std::string path = path_join(model_directory, name);
    DSJ_TRY(const EntryKind kind, files.kind(path));
    if (kind != EntryKind::File) continue;
    DSJ_TRY(const std::string content, content_of(files, path));
    all += (all.empty() ? "" : " ") + std::string(name) + "=" + content;
  }
  return all;
}

json to_json(const DataRecord& record) {
  return {{"train", record.train},
          {"eval", record.eval},
          {"tokenizer", record.tokenizer},
          {"selection", record.selection},
          {"rows", record.rows},
          {"split_rows", record.split_rows},
          {"max_seq_length", record.max_seq_length},
          {"chat_template", record.chat_template},
          {"default_system", record.default_system},
          {"by_length", record.by_length},
          {"packing", record.packing}};
}

DataChange data_change(const json& saved, const json& now) {
  DataChange change;
  if (!saved.is_object() || !now.is_object()) return change;
  if (differs(saved, now, "train"))
    change.breaks.push_back("the data file has other content (" + was(saved, now, "rows") +
                            " rows)");
  if (differs(saved, now, "selection"))
    change.breaks.push_back("other rows are chosen (" + was(saved, now, "selection") + ")");
  if (differs(saved, now, "split_rows"))
    change.breaks.push_back("other rows are held out for evaluation (the first " +
                            was(saved, now, "split_rows") +
                            "): rows that were trained on may become evaluation rows");
  const bool by_length = saved.value("by_length", false) || now.value("by_length", false);
  auto& lengths = by_length ? change.breaks : change.told;
  if (differs(saved, now, "max_seq_length"))
    lengths.push_back("rows are cut at another length (" + was(saved, now, "max_seq_length") + ")");
  if (differs(saved, now, "chat_template"))
    lengths.push_back("another chat template (" + was(saved, now, "chat_template") + ")");
  if (differs(saved, now, "default_system"))
    lengths.push_back("another default system text (" + was(saved, now, "default_system") + ")");
  if (differs(saved, now, "tokenizer"))
    lengths.push_back("the tokenizer's files have other content");
  if (differs(saved, now, "by_length"))
    change.breaks.push_back("rows are no longer packed or grouped as they were");
  else if (differs(saved, now, "packing"))
    change.breaks.push_back("rows are packed in another way (" + was(saved, now, "packing") + ")");
  if (differs(saved, now, "eval"))
    change.told.push_back("the evaluation file has other content: eval_loss is of other rows");
  return change;
}

}  // namespace dsj::data
