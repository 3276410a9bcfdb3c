#include "engine/weights/formats/state_dict_pickle.h"

#include <set>

namespace dsj::weights {
namespace {

constexpr char kHint[] =
    "a plain state dict is read; save it again with model.save_pretrained(DIR)";

}  // namespace

Result<std::vector<PickledTensor>> read_state_dict_pickle(std::string_view bytes,
                                                          const std::string& path) {
  DSJ_TRY(const Pickle pickle, read_pickle(bytes, state_dict_names(), "a state dict", path, kHint));
  const PickleValue& dict = pickle.at(pickle.root);
  if (dict.kind != PickleKind::Dict)
    return bad_input("pickle: a dict of tensors is expected", path, kHint);
  std::vector<PickledTensor> all;
  std::set<std::string> names;
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    const PickleValue &key = pickle.at(dict.items[i]), &value = pickle.at(dict.items[i + 1]);
    if (key.kind != PickleKind::Text)
      return bad_input("pickle: a key is not a string", path, kHint);
    if (value.kind != PickleKind::Tensor) {
      return bad_input("pickle: \"" + key.text + "\" is not a tensor", path, kHint);
    }
    if (!names.insert(key.text).second) {
      return bad_input("pickle: tensor \"" + key.text + "\" is listed twice", path, kHint);
    }
    DSJ_TRY(auto one, pickled_tensor(pickle, value, key.text, path, kHint));
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace dsj::weights
