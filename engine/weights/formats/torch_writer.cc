#include "engine/weights/formats/torch_writer.h"

#include <functional>
#include <numeric>

#include "common/check.h"

namespace dsj::weights {
namespace {

constexpr char kFolder[] = "archive/";  // any name works

}  // namespace

Result<TorchWriter> TorchWriter::create(Files& files, const std::string& path) {
  DSJ_TRY(ZipWriter zip, ZipWriter::create(files, path));
  return TorchWriter(std::move(zip));
}

pickled::Value TorchWriter::tensor(const std::vector<int64_t>& shape) {
  using namespace pickled;
  const int64_t elements =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  Items extents, strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= std::max<int64_t>(shape[i], 1))
    strides[i] = integer(stride);
  for (const int64_t extent : shape) extents.push_back(integer(extent));
  const pickled::Value storage =
      tuple({str("storage"), global("torch", "FloatStorage"), str(std::to_string(elements_.size())),
             str("cpu"), integer(elements)});
  elements_.push_back(elements);
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage + "Q", integer(0), tuple(extents), tuple(strides), boolean(false),
               ordered_dict({})});
}

Status TorchWriter::begin(const pickled::Value& root) {
  DSJ_TRY_STATUS(zip_.add(std::string(kFolder) + "data.pkl", "\x80\x02" + root + "."));
  DSJ_TRY_STATUS(zip_.add(std::string(kFolder) + "byteorder", "little"));
  DSJ_TRY_STATUS(zip_.add(std::string(kFolder) + "version", "3\n"));
  if (elements_.empty()) return {};
  left_ = elements_[0];
  DSJ_TRY_STATUS(zip_.begin(std::string(kFolder) + "data/0", left_ * int64_t{sizeof(float)}));
  return left_ == 0 ? advance() : Status{};
}

Status TorchWriter::advance() {
  while (index_ < elements_.size() && left_ == 0) {
    DSJ_TRY_STATUS(zip_.end());
    if (++index_ == elements_.size()) break;
    left_ = elements_[index_];
    DSJ_TRY_STATUS(
        zip_.begin(kFolder + ("data/" + std::to_string(index_)), left_ * int64_t{sizeof(float)}));
  }
  return {};
}

Status TorchWriter::append(std::span<const float> values) {
  DSJ_CHECK(static_cast<int64_t>(values.size()) <= left_);
  DSJ_TRY_STATUS(zip_.append(std::as_bytes(values)));
  left_ -= static_cast<int64_t>(values.size());
  return advance();
}

Status TorchWriter::finish() {
  DSJ_CHECK(index_ == elements_.size());
  return zip_.finish();
}

}  // namespace dsj::weights
