#include "engine/deepspeed/ranges.h"

#include <algorithm>

namespace dsj::deepspeed {
namespace {

/// The part of `stretch` in [begin, end), counted as the stretch counts.
Stretch cut(const Stretch& stretch, int64_t begin, int64_t end) {
  const int64_t from = std::max(begin, stretch.begin),
                to = std::min(end, stretch.begin + stretch.elements);
  Stretch part = stretch;
  part.begin = from;
  part.elements = to - from;
  part.byte += (from - stretch.begin) * weights::dtype_bytes(stretch.dtype);
  return part;
}

/// The first stretch that ends behind `element`.
auto first_behind(const std::vector<Stretch>& stretches, int64_t element) {
  return std::ranges::upper_bound(stretches, element, {}, [](const Stretch& stretch) {
    return stretch.begin + stretch.elements;
  });
}

}  // namespace

void append(FlatVector& flat, int64_t begin, size_t file, const weights::TensorInfo& tensor) {
  if (tensor.elements > 0)
    flat.push_back({begin, tensor.elements, file, tensor.begin, tensor.dtype});
}

Status Ranges::take(const StateOf& name, int64_t offset, int64_t count, const FlatVector& flat,
                    int64_t at, const std::string& path) {
  int64_t covered = 0;
  for (auto stretch = first_behind(flat, at); stretch != flat.end() && stretch->begin < at + count;
       ++stretch) {
    Stretch part = cut(*stretch, at, at + count);
    part.begin += offset - at;
    covered += part.elements;
    stretches_[name].push_back(part);
  }
  if (covered == count) return {};
  return fail(ErrorKind::Environment,
              name.first + " of " + name.second + ": " + std::to_string(covered) + " of " +
                  std::to_string(count) + " elements are there",
              path, kDamagedHint);
}

std::optional<int64_t> Ranges::elements(const StateOf& name) const {
  const auto found = elements_.find(name);
  return found == elements_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<Stretch> Ranges::find(const StateOf& name, int64_t offset, int64_t count) const {
  std::vector<Stretch> parts;
  const auto found = stretches_.find(name);
  if (found == stretches_.end()) return parts;
  auto stretch = first_behind(found->second, offset);
  for (; stretch != found->second.end() && stretch->begin < offset + count; ++stretch)
    parts.push_back(cut(*stretch, offset, offset + count));
  return parts;
}

Status Ranges::check(const std::string& path) {
  for (auto& [name, stretches] : stretches_) std::ranges::sort(stretches, {}, &Stretch::begin);
  for (const auto& [name, elements] : elements_) {
    int64_t end = 0;
    for (const Stretch& stretch : stretches_[name])
      end = stretch.begin == end ? end + stretch.elements : INT64_MIN;
    if (end != elements)
      return fail(ErrorKind::Environment,
                  name.first + " of " + name.second + ": its parts are not its " +
                      std::to_string(elements) + " elements",
                  path, kDamagedHint);
  }
  return {};
}

}  // namespace dsj::deepspeed
