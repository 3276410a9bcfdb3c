// A Hugging Face model directory as one GGUF file, for llama.cpp, ollama and others. One tensor at a
// time is in memory, large ones in pieces. Without libtorch. Called by `dsj export gguf`.
// Left out: adapters (`dsj merge` first), split files, types below 8 bits (llama-quantize makes them).
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
  std::string output;        ///< the file; must not exist. "{ftype}" in its name becomes the type's
  std::optional<Type> type;  ///< of matrices; nullopt: F16 if most of the model is, else BF16
  std::string name;          ///< general.name; empty: of the directory
};

struct Exported {
  std::string path;
  std::string architecture;
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> notes;  ///< what a user should know
};

/// BadInput: a model that llama.cpp has no architecture for, or that it would compute otherwise; a
/// tokenizer that it would follow in another way; an adapter; a file that is there already. Nothing
/// is left of a file that could not be finished.
Result<Exported> export_gguf(Files& files, const ExportOptions& options);

}  // namespace dsj::gguf
