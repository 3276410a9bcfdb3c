#include "engine/weights/tensor_check.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/weights/adapter.h"
#include "engine/weights/formats/weight_type.h"

namespace dsj::weights {
namespace {

/// Saved by older classes and computed anew by all.
bool is_computed(const TensorInfo& tensor) {
  const std::string_view name = tensor.name;
  return name.ends_with("inv_freq") || name.ends_with(".masked_bias") ||
         (name.ends_with(".bias") && tensor.shape.size() == 4);
}

/// "layers.3.bias" becomes "layers.*.bias".
std::string without_numbers(std::string_view name) {
  std::string out;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, dot - at);
    const bool number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    out.append(number ? "*" : part);
    if (dot < name.size()) out += '.';
    at = dot + 1;
  }
  return out;
}

}  // namespace

Status check_tensor(const WeightSource& source, const std::string& name,
                    const std::vector<int64_t>& shape) {
  const std::string file = source.paths().front();
  const TensorInfo* found = source.find(name);
  if (!found)
    return bad_input("the checkpoint has no tensor \"" + name + "\"", file,
                     "are config.json and the weights of one model?");
  if (found->shape != shape) {
    const auto text = [](const std::vector<int64_t>& sizes) {
      return nlohmann::json(sizes).dump();
    };
    return bad_input("tensor \"" + name + "\" has shape " + text(found->shape) +
                         ", config.json asks for " + text(shape),
                     file);
  }
  return check_weight_type(*found, file);
}

Status check_buffer(const WeightSource& source, const layout::Parameter& buffer) {
  const TensorInfo* found = source.find(buffer.name);
  return check_tensor(source, buffer.name,
                      found && found->elements == buffer.numel() ? found->shape : buffer.shape);
}

Status check_tensors(const WeightSource& source, const std::vector<layout::UnitSpec>& units) {
  for (const auto& unit : units) {
    for (const auto& parameter : unit.parameters)
      if (!is_adapter_tensor(parameter.name) &&
          (parameter.drawn == 0 || source.find(parameter.name) != nullptr))
        DSJ_TRY_STATUS(check_tensor(source, parameter.name, parameter.shape));
    for (const auto& buffer : unit.buffers) DSJ_TRY_STATUS(check_buffer(source, buffer));
  }
  return {};
}

std::string unread_tensors(const WeightSource& source, const layout::ModelConfig& model) {
  if (model.is_text_part) return {};
  std::set<const TensorInfo*> read = {source.find(std::string(model.names.head) + ".weight")};
  for (const auto& unit : layout::units_of(model)) {
    for (const auto& parameter : unit.parameters) read.insert(source.find(parameter.name));
    for (const auto& buffer : unit.buffers) read.insert(source.find(buffer.name));
  }
  std::map<std::string, std::vector<std::string>> alike;
  int64_t count = 0;
  for (const TensorInfo& tensor : source.tensors()) {
    if (read.contains(source.find(tensor.name)) || is_computed(tensor)) continue;
    alike[without_numbers(tensor.name)].push_back(tensor.name);
    ++count;
  }
  if (alike.empty()) return {};
  constexpr size_t kShown = 6;
  const bool one = count == 1;
  std::string text =
      std::to_string(count) + (one ? " tensor of the files is" : " tensors of the files are") +
      " not read, because config.json describes a model without " + (one ? "it: " : "them: ");
  size_t shown = 0;
  for (const auto& [name, names] : alike) {
    if (shown == kShown) break;
    text += (shown++ == 0 ? "" : ", ") +
            (names.size() == 1 ? names.front() : name + " (" + std::to_string(names.size()) + ")");
  }
  if (alike.size() > kShown) text += " and others";
  return text;
}

Status check_tied_head(const WeightSource& source, const layout::ModelConfig& model, int part,
                       int parts) {
  const std::string head = std::string(model.names.head) + ".weight";
  const std::string embedding = layout::units_of(model).front().parameters.front().name;
  const TensorInfo* own = source.find(head);
  const TensorInfo* shared = source.find(embedding);
  if (!model.tied || !own || !shared) return {};
  bool equal = own->shape == shared->shape;
  const int64_t first = own->elements * part / parts;
  const int64_t last = own->elements * (part + 1) / parts;
  constexpr int64_t kPiece = 1 << 20;  // elements
  std::vector<float> a, b;
  for (int64_t at = first; equal && at < last; at += kPiece) {
    a.resize(static_cast<size_t>(std::min(kPiece, last - at)));
    b.resize(a.size());
    DSJ_TRY_STATUS(source.read(head, at, a));
    DSJ_TRY_STATUS(source.read(embedding, at, b));
    equal = std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
  if (equal) return {};
  return bad_input("tie_word_embeddings makes \"" + shared->name +
                       "\" the output layer, but the files have \"" + own->name +
                       "\" with other values",
                   source.paths().front(),
                   std::string("set tie_word_embeddings to false in config.json") +
                       (model.is_text_part ? ", beside text_config," : "") +
                       " to train both, as transformers does, or remove the tensor");
}

Status check_tied_copies(const WeightSource& adapter, const layout::TiedPair& tied) {
  const TensorInfo* embedding = adapter.find(kAdapterPrefix + tied.embedding);
  const TensorInfo* head = adapter.find(kAdapterPrefix + tied.head);
  const auto differ = [&] {
    return bad_input("\"ensure_weight_tying\" is true, but \"" + tied.embedding + "\" and \"" +
                         tied.head + "\" are not both there with the same values",
                     adapter.paths().front());
  };
  if (!embedding || !head || embedding->shape != head->shape) return differ();
  return adapter.read_rows(*embedding, [&](int64_t first, std::span<float> values) -> Status {
    std::vector<float> other(values.size());
    DSJ_TRY_STATUS(adapter.read(head->name, first, other));
    return std::memcmp(values.data(), other.data(), values.size_bytes()) == 0 ? Status{} : differ();
  });
}

}  // namespace dsj::weights
