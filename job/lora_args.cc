#include "job/lora_args.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "common/json.h"
#include "common/text.h"

namespace dsj {
namespace {

using nlohmann::json;

constexpr int64_t kMaxRank = 1 << 16;

std::unexpected<Error> wrong(const json& value, const char* expected, const std::string& path) {
  return bad_input("found " + json_brief(value) + ", expected " + expected, path);
}

std::optional<double> number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return text::parse_double(value.get<std::string>());
  return std::nullopt;
}

std::optional<bool> bool_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return text::parse_bool(value.get<std::string>());
  return std::nullopt;
}

Status read_names(const json& value, const std::string& path, std::vector<std::string>& names,
                  const std::string& kind = "a module") {
  if (!value.is_array()) return wrong(value, ("a list of names, each of " + kind).c_str(), path);
  for (const json& name : value) {
    if (!name.is_string() || name.get<std::string>().empty())
      return wrong(name, ("the name of " + kind).c_str(), path);
    if (std::ranges::find(names, name.get<std::string>()) != names.end())
      return bad_input("\"" + name.get<std::string>() + "\" is given twice", path);
    names.push_back(name.get<std::string>());
  }
  return {};
}

Status read_r(LoraArgs& args, const json& value, const std::string& path) {
  const auto number = number_of(value);
  const auto whole = number ? text::to_int(*number) : std::nullopt;
  if (!whole || *whole < 1 || *whole > kMaxRank) return wrong(value, "a rank of at least 1", path);
  args.r = *whole;
  return {};
}

Status read_alpha(LoraArgs& args, const json& value, const std::string& path) {
  const auto number = number_of(value);
  if (!number || !std::isfinite(*number) || *number <= 0)
    return wrong(value, "a number greater than 0", path);
  args.alpha = *number;
  return {};
}

Status read_dropout(LoraArgs& args, const json& value, const std::string& path) {
  const auto number = number_of(value);
  if (!number || !(*number >= 0 && *number < 1))
    return wrong(value, "a probability from 0 to below 1", path);
  args.dropout = *number;
  return {};
}

Status read_targets(LoraArgs& args, const json& value, const std::string& path) {
  if (!value.is_string()) {
    args.no_modules = value.is_array() && value.empty();
    return read_names(value, path, args.target_modules);
  }
  args.target_pattern = value.get<std::string>();
  if (args.target_pattern.empty())
    return bad_input("the text is empty", path, "name modules, or write all-linear");
  return {};
}

Status read_parameters(LoraArgs& args, const json& value, const std::string& path) {
  return read_names(value, path, args.target_parameters, "a parameter");
}

Status read_saved(LoraArgs& args, const json& value, const std::string& path) {
  return read_names(value, path, args.modules_to_save);
}

Status read_tying(LoraArgs& args, const json& value, const std::string& path) {
  const auto flag = bool_of(value);
  if (!flag) return wrong(value, "true or false", path);
  args.ensure_weight_tying = *flag;
  return {};
}

Status read_lr_ratio(LoraArgs& args, const json& value, const std::string& path) {
  const auto number = number_of(value);
  if (!number || !std::isfinite(*number) || *number <= 0)
    return wrong(value, "a number greater than 0, such as 16", path);
  args.lr_ratio = *number;
  return {};
}

Status read_rslora(LoraArgs& args, const json& value, const std::string& path) {
  const auto flag = bool_of(value);
  if (!flag) return wrong(value, "true or false", path);
  args.use_rslora = *flag;
  return {};
}

Status read_dora(LoraArgs& args, const json& value, const std::string& path) {
  const auto flag = bool_of(value);
  if (!flag) return wrong(value, "true or false", path);
  args.use_dora = *flag;
  return {};
}

/// Why a way to begin that PEFT has is not built, by its name's first word; null: it is not one.
const char* init_refusal(const std::string& name) {
  static constexpr std::pair<const char*, const char*> kWays[] = {
      {"pissa",
       "PiSSA takes the adapter out of the base's weights, and a run leaves them as they are"},
      {"olora",
       "OLoRA takes the adapter out of the base's weights, and a run leaves them as they are"},
      {"corda",
       "CorDA takes the adapter out of the base's weights, and a run leaves them as they are"},
      {"lora_ga",
       "LoRA-GA takes the adapter out of the base's weights, and a run leaves them as they "
       "are"},
      {"loftq", "LoftQ changes the base's weights, and a run leaves them as they are"},
      {"eva", "EVA begins with a pass over the rows, which is not built"},
      {"orthogonal", "orthogonal matrices are not built"},
      {"mica", "MiCA trains A alone, which is not built"}};
  for (const auto& [word, why] : kWays)
    if (name.starts_with(word)) return why;
  return nullptr;
}

Status read_init(LoraArgs& args, const json& value, const std::string& path) {
  std::string name = value.is_string() ? value.get<std::string>() : "";
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (const auto flag = bool_of(value)) {
    args.init = *flag ? AdapterInit::Zero : AdapterInit::Random;
  } else if (name == "gaussian") {
    args.init = AdapterInit::Gaussian;
  } else if (const char* why = init_refusal(name)) {
    const bool from_base = std::string_view(why).find("out of the base") != std::string_view::npos;
    return bad_input(
        why, path,
        from_base ? "make the residual model and its first adapter with PEFT, and name them as "
                    "modelNameOrPath and lora.adapterNameOrPath"
                  : "leave it out, or write gaussian");
  } else {
    return wrong(value, "true, false or gaussian", path);
  }
  return {};
}

/// An object, or its text.
Result<json> pattern_object(const json& value, const std::string& path) {
  json object = value;
  if (value.is_string()) object = json::parse(value.get<std::string>(), nullptr, false);
  if (!object.is_object())
    return std::unexpected(wrong(value, "an object such as {\"down_proj\": 4}", path).error());
  return object;
}

Status read_rank_pattern(LoraArgs& args, const json& value, const std::string& path) {
  DSJ_TRY(const json object, pattern_object(value, path));
  for (const auto& [key, rank] : object.items()) {
    LoraArgs one;
    DSJ_TRY_STATUS(read_r(one, rank, path + "." + key));
    args.rank_pattern.emplace_back(key, one.r);
  }
  return {};
}

Status read_alpha_pattern(LoraArgs& args, const json& value, const std::string& path) {
  DSJ_TRY(const json object, pattern_object(value, path));
  for (const auto& [key, alpha] : object.items()) {
    LoraArgs one;
    DSJ_TRY_STATUS(read_alpha(one, alpha, path + "." + key));
    args.alpha_pattern.emplace_back(key, one.alpha);
  }
  return {};
}

Status read_layers(LoraArgs& args, const json& value, const std::string& path) {
  json list = value;
  if (value.is_string()) {  // a command line's, commas between
    list = json::parse("[" + value.get<std::string>() + "]", nullptr, false);
    if (list.is_array() && list.size() == 1 && list[0].is_array()) list = json(list[0]);
  }
  if (!list.is_array()) list = json::array({list});
  for (const json& one : list) {
    const auto number = number_of(one);
    const auto layer = number ? text::to_int(*number) : std::nullopt;
    if (!layer || *layer < 0) return wrong(value, "numbers of layers, from 0", path);
    args.layers_to_transform.push_back(*layer);
  }
  std::ranges::sort(args.layers_to_transform);
  return {};
}

Status read_adapter(LoraArgs& args, const json& value, const std::string& path) {
  if (!value.is_string() || value.get<std::string>().empty())
    return wrong(value, "a directory with adapter_config.json", path);
  args.adapter = value.get<std::string>();
  if (args.adapter.contains(','))
    return bad_input("names several adapters", path,
                     "dsj merge each but the last into the base, and name the last");
  return {};
}

Status read_bias(LoraArgs&, const json& value, const std::string& path) {
  if (value == "none") return {};
  return bad_input("found " + json_brief(value) + "; only \"none\" is built: biases stay frozen",
                   path, "remove it");
}

Status read_load_in_4bit(LoraArgs& args, const json& value, const std::string& path) {
  const auto flag = bool_of(value);
  if (!flag) return wrong(value, "true or false", path);
  args.load_in_4bit = *flag;
  return {};
}

Status read_load_in_8bit(LoraArgs&, const json& value, const std::string& path) {
  if (bool_of(value) == false) return {};
  return bad_input("a base in 8 bits (LLM.int8()) is not built", path,
                   "write loadIn4bit: true, or leave it out for a base of 16 bits");
}

Status read_quant_type(LoraArgs&, const json& value, const std::string& path) {
  if (value == "nf4") return {};
  return bad_input("found " + json_brief(value) + "; only \"nf4\" is built", path,
                   "write nf4, which is made for weights");
}

Status read_double_quant(LoraArgs& args, const json& value, const std::string& path) {
  const auto flag = bool_of(value);
  if (!flag) return wrong(value, "true or false", path);
  args.double_quant = *flag;
  return {};
}

Status read_compute_dtype(LoraArgs& args, const json& value, const std::string& path) {
  std::string name = value.is_string() ? value.get<std::string>() : "";
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const auto& [brief, whole] : {std::pair{"bf16", "bfloat16"},
                                     {"fp16", "float16"},
                                     {"half", "float16"},
                                     {"fp32", "float32"}})
    if (name == brief) name = whole;
  if (name == "auto")
    name.clear();
  else if (name != "float32" && name != "bfloat16" && name != "float16")
    return wrong(value, "bfloat16, float16 or float32", path);
  args.compute_dtype = name;
  return {};
}

struct Field {
  const char* name;
  Status (*read)(LoraArgs&, const json&, const std::string&);
};
constexpr Field kFields[] = {{"r", read_r},
                             {"alpha", read_alpha},
                             {"dropout", read_dropout},
                             {"targetModules", read_targets},
                             {"targetParameters", read_parameters},
                             {"modulesToSave", read_saved},
                             {"ensureWeightTying", read_tying},
                             {"useRslora", read_rslora},
                             {"bias", read_bias},
                             {"useDora", read_dora},
                             {"initLoraWeights", read_init},
                             {"rankPattern", read_rank_pattern},
                             {"alphaPattern", read_alpha_pattern},
                             {"layersToTransform", read_layers},
                             {"adapterNameOrPath", read_adapter},
                             {"loraplusLrRatio", read_lr_ratio},
                             {"loadIn4bit", read_load_in_4bit},
                             {"loadIn8bit", read_load_in_8bit},
                             {"bnb4bitQuantType", read_quant_type},
                             {"bnb4bitUseDoubleQuant", read_double_quant},
                             {"bnb4bitComputeDtype", read_compute_dtype}};

/// Our name for a field that has another name in PEFT.
std::string own_name(const std::string& key) {
  const std::string plain = text::normalized(key);
  if (plain == "loraalpha") return "alpha";
  if (plain == "loradropout") return "dropout";
  if (plain == "lorar" || plain == "rank") return "r";
  if (plain == "usebnbnestedquant" || plain == "doublequantization") return "bnb4bitUseDoubleQuant";
  if (plain == "quantizationtype") return "bnb4bitQuantType";
  if (plain == "lorapluslrratio" || plain == "loraplrratio") return "loraplusLrRatio";
  if (plain == "quantizationbit") return "loadIn4bit";
  return {};
}

/// Whether `key` is a setting of PEFT that would change the result and is not built.
bool is_not_built(const std::string& key) {
  static constexpr const char* kNames[] = {
      "layerspattern",    "excludemodules", "loftqconfig", "evaconfig",
      "cordaconfig",      "faninfanout",    "lorabias",    "trainabletokenindices",
      "layerreplication", "megatronconfig", "useqalora"};
  return std::ranges::find(kNames, text::normalized(key)) != std::end(kNames);
}

}  // namespace

double LoraArgs::scaling_of(int64_t its_rank, double its_alpha) const {
  const auto rank = static_cast<double>(its_rank);
  return its_alpha / (use_rslora ? std::sqrt(rank) : rank);
}

int64_t LoraArgs::largest_rank() const {
  int64_t largest = r;
  for (const auto& [key, rank] : rank_pattern) largest = std::max(largest, rank);
  return largest;
}

bool LoraArgs::says(const char* field) const {
  return std::ranges::find(said, field) != said.end();
}

Result<LoraArgs> lora_args_from_json(const json& object, const std::string& path) {
  if (!object.is_object())
    return bad_input("found " + json_brief(object) + ", expected an object", path,
                     "write lora: {r: 8, alpha: 16, targetModules: [q_proj, v_proj]}");
  LoraArgs args;
  std::vector<std::string> names;
  for (const Field& field : kFields) names.emplace_back(field.name);
  for (const auto& [key, value] : object.items()) {
    const std::string at = path + "." + key;
    const auto field = std::ranges::find(names, key);
    if (field != names.end()) {
      if (value.is_null()) continue;
      DSJ_TRY_STATUS(kFields[field - names.begin()].read(args, value, at));
      continue;
    }
    if (is_not_built(key)) return bad_input("not built in this version", at, "remove it");
    const std::string own = own_name(key);
    const std::string hint =
        own.empty() ? text::did_you_mean(key, names) : "write \"" + own + "\" here";
    return bad_input("\"" + key + "\" is not a setting of LoRA", at,
                     hint.empty() ? "remove it" : hint);
  }
  if (args.no_modules && args.target_parameters.empty() && args.adapter.empty())
    return bad_input("the list is empty", path + ".targetModules",
                     "name modules, or write all-linear");
  if (args.adapter.empty()) return args;
  for (const auto& [key, value] : object.items())
    if (key != "adapterNameOrPath" && !value.is_null()) args.said.push_back(key);
  std::ranges::sort(args.said);
  return args;
}

json to_json(const LoraArgs& args) {
  json object = {{"r", args.r}, {"alpha", args.alpha}, {"dropout", args.dropout}};
  if (!args.target_pattern.empty()) object["targetModules"] = args.target_pattern;
  if (!args.target_modules.empty()) object["targetModules"] = args.target_modules;
  if (args.no_modules) object["targetModules"] = json::array();
  if (!args.target_parameters.empty()) object["targetParameters"] = args.target_parameters;
  if (!args.modules_to_save.empty()) object["modulesToSave"] = args.modules_to_save;
  if (args.ensure_weight_tying) object["ensureWeightTying"] = true;
  if (args.use_rslora) object["useRslora"] = true;
  if (args.use_dora) object["useDora"] = true;
  if (args.init == AdapterInit::Gaussian) object["initLoraWeights"] = "gaussian";
  if (args.init == AdapterInit::Random) object["initLoraWeights"] = false;
  for (const auto& [key, rank] : args.rank_pattern) object["rankPattern"][key] = rank;
  for (const auto& [key, alpha] : args.alpha_pattern) object["alphaPattern"][key] = alpha;
  if (!args.layers_to_transform.empty()) object["layersToTransform"] = args.layers_to_transform;
  if (args.lr_ratio != 1) object["loraplusLrRatio"] = args.lr_ratio;
  if (args.load_in_4bit) object["loadIn4bit"] = true;
  if (args.double_quant) object["bnb4bitUseDoubleQuant"] = true;
  if (!args.compute_dtype.empty()) object["bnb4bitComputeDtype"] = args.compute_dtype;
  if (args.adapter.empty()) return object;
  for (auto it = object.begin(); it != object.end();)
    it = args.says(it.key().c_str()) ? std::next(it) : object.erase(it);
  // What is said by default is the adapter's to contradict.
  if (args.says("useRslora")) object["useRslora"] = args.use_rslora;
  if (args.says("useDora")) object["useDora"] = args.use_dora;
  if (args.says("ensureWeightTying")) object["ensureWeightTying"] = args.ensure_weight_tying;
  object["adapterNameOrPath"] = args.adapter;
  return object;
}

std::string differences(const LoraArgs& before, const LoraArgs& after) {
  const json old = to_json(before), now = to_json(after);
  std::string text;
  for (const Field& field : kFields) {
    const json a = old.value(field.name, json()), b = now.value(field.name, json());
    if (a == b) continue;
    text += (text.empty() ? "" : ", ") + std::string(field.name) + " " +
            (a.is_null() ? "(not given)" : json_brief(a)) + " → " +
            (b.is_null() ? "(not given)" : json_brief(b));
  }
  return text;
}

}  // namespace dsj
