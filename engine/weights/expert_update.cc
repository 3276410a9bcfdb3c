#include "engine/weights/expert_update.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/weights/adapter.h"
#include "job/layout/lora.h"

namespace dsj::weights {

Result<std::map<std::string, ExpertChange>> expert_changes(const layout::ModelConfig& model,
                                                           const LoraArgs& lora) {
  std::map<std::string, ExpertChange> changes;
  DSJ_TRY(const LoraArgs resolved, layout::resolve_lora(model, lora));
  for (const layout::UnitSpec& unit : layout::units_of(model, resolved)) {
    for (const layout::Adapter& adapter : unit.adapters) {
      const std::string a = unit.parameters[adapter.a].name;
      const bool router = unit.parameters[adapter.weight].name.ends_with(
          std::string(".") + model.names.router + ".weight");
      if (adapter.experts == 0 && !router) continue;  // of a module
      for (const layout::AdaptedPart& part : layout::adapted_parts(unit, adapter)) {
        const layout::Parameter& weight = unit.parameters[part.weight];
        const bool turned = model.experts.turned || model.experts.alternates;
        changes[weight.name] = {.a = kAdapterPrefix + a,
                                .b = kAdapterPrefix + unit.parameters[adapter.b].name,
                                .experts = std::max<int64_t>(1, adapter.experts),
                                .scaling = adapter.scaling,
                                .expert = adapter.experts == 0 ? 0 : part.expert,
                                .first = part.first,
                                .in_out = turned && weight.shape.size() > 2};
      }
    }
  }
  return changes;
}

Status check_finite(std::span<const float> values, const std::string& name,
                    const WeightSource& source) {
  if (std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return {};
  return bad_input("tensor \"" + name + "\" has nan or infinity in it", source.paths()[0]);
}

Result<Matrix> read_matrix(const WeightSource& source, const std::string& name) {
  const TensorInfo* info = source.find(name);
  if (info == nullptr) return bad_input("there is no tensor \"" + name + "\"", source.paths()[0]);
  if (info->shape.size() != 2)
    return bad_input("tensor \"" + name + "\" is not a matrix", source.paths()[0]);
  Matrix matrix{std::vector<float>(info->elements), info->shape[0], info->shape[1]};
  DSJ_TRY_STATUS(source.read(name, 0, matrix.values));
  DSJ_TRY_STATUS(check_finite(matrix.values, name, source));
  return matrix;
}

Result<std::shared_ptr<const Matrix>> MatrixReader::read(const std::string& name) {
  constexpr size_t kKept = 4;  // of one layer
  for (const auto& [kept, matrix] : recent_)
    if (kept == name) return matrix;
  DSJ_TRY(Matrix matrix, read_matrix(source_, name));
  if (recent_.size() == kKept) recent_.erase(recent_.begin());
  recent_.emplace_back(name, std::make_shared<const Matrix>(std::move(matrix)));
  return recent_.back().second;
}

Result<ExpertUpdate> ExpertUpdate::open(MatrixReader& adapter, const ExpertChange& change,
                                        const TensorInfo& weight) {
  ExpertUpdate update;
  update.change_ = change;
  DSJ_TRY(update.a_, adapter.read(change.a));
  DSJ_TRY(update.b_, adapter.read(change.b));
  const Matrix &a = *update.a_, &b = *update.b_;
  const auto& shape = weight.shape;
  const size_t dims = change.expert < 0 ? 3 : 2;
  if (shape.size() == dims) {
    update.rows_ = shape[dims - 2];
    update.columns_ = shape[dims - 1];
  }
  update.rank_ = a.rows / change.experts;
  const int64_t in = change.in_out ? update.rows_ : update.columns_;
  const int64_t out = change.in_out ? update.columns_ : update.rows_;
  const bool all = dims == 3;
  if (shape.size() != dims || (all && shape[0] != change.experts) || a.columns != in ||
      a.rows != update.rank_ * change.experts || b.columns != a.rows ||
      (all ? b.rows != out : b.rows < change.first + out)) {
    const auto text = [](const std::vector<int64_t>& sizes) {
      return nlohmann::json(sizes).dump();
    };
    return bad_input("tensor \"" + weight.name + "\" has shape " + text(shape) +
                         "; its adapter's " + "lora_A has " + text({a.rows, a.columns}) +
                         ", its lora_B " + text({b.rows, b.columns}) + ", for " +
                         std::to_string(change.experts) + " experts",
                     change.a);
  }
  return update;
}

void ExpertUpdate::add(int64_t first, std::span<float> values) const {
  const Matrix &a = *a_, &b = *b_;
  const auto scaling = static_cast<float>(change_.scaling);
  std::vector<float> delta(static_cast<size_t>(columns_));
  for (size_t done = 0; done < values.size();) {
    const int64_t at = first + static_cast<int64_t>(done);
    const int64_t expert = change_.expert < 0 ? at / (rows_ * columns_) : change_.expert;
    const int64_t row = at / columns_ % rows_, column = at % columns_;
    const auto count = std::min<size_t>(columns_ - column, values.size() - done);
    std::fill_n(delta.begin(), count, 0.0f);
    for (int64_t k = 0; k < rank_; ++k) {
      const float* of_a = a.values.data() + (expert * rank_ + k) * a.columns;
      const float* of_b = b.values.data() + k * change_.experts + expert;
      if (change_.in_out) {
        for (size_t i = 0; i < count; ++i)
          delta[i] +=
              of_a[row] * of_b[(change_.first + column + static_cast<int64_t>(i)) * b.columns];
      } else {
        const float factor = of_b[(change_.first + row) * b.columns];
        for (size_t i = 0; i < count; ++i)
          delta[i] += factor * of_a[column + static_cast<int64_t>(i)];
      }
    }
    for (size_t i = 0; i < count; ++i) values[done + i] += scaling * delta[i];
    done += count;
  }
}

}  // namespace dsj::weights
