#include "engine/weights/tensor_check.h"

#include <nlohmann/json.hpp>

#include "engine/weights/adapter.h"
#include "engine/weights/weight_type.h"

namespace dsj::weights {

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

}  // namespace dsj::weights
