// Exports a Hugging Face model directory as one GGUF file, for llama.cpp, ollama and others. One
// tensor at a time is in memory, large ones in pieces. Without libtorch. Called by `dsj export
// gguf`. Not supported: adapters (`dsj merge` first), split files, types below 8 bits (use
// llama-quantize).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/files/files.h"
#include "common/result.h"
#include "engine/gguf/format.h"

namespace dsj::gguf {

struct ExportOptions {
  std::string model;         ///< a directory in Hugging Face's layout
  std::string output;        ///< the file; must not exist. "{ftype}" is replaced by the type
  std::optional<Type> type;  ///< of matrices; default: F16 if the model is mostly F16, else BF16
  std::string name;          ///< general.name; default: the directory's
};

struct Exported {
  std::string path;
  std::string architecture;
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> notes;  ///< notes for the user
};

/// BadInput: llama.cpp has no architecture for the model or would compute it differently; it would
/// use the tokenizer differently; an adapter; an existing file. Removes an unfinished file.
Result<Exported> export_gguf(Files& files, const ExportOptions& options);

}  // namespace dsj::gguf
