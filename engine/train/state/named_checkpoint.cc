#include "engine/train/state/named_checkpoint.h"

#include "engine/comm/agree.h"

namespace dsj::train {

Result<std::optional<deepspeed::Folder>> deepspeed_folder(Files& files, const std::string& path,
                                                          bool universal,
                                                          comm::Collectives& collectives,
                                                          at::Device device) {
  const auto look = [&]() -> Result<std::string> {
    DSJ_TRY(const bool deepspeeds, deepspeed::is_deepspeed(files, path));
    if (!deepspeeds) return std::string();
    DSJ_TRY(const auto folder, deepspeed::find_folder(files, path, universal));
    return deepspeed::to_text(folder);
  };
  DSJ_TRY(const std::string text, comm::said_by_first(collectives, device, look));
  if (text.empty()) return std::nullopt;
  return deepspeed::folder_of_text(text);
}

}  // namespace dsj::train
