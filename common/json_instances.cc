#include "common/json_instances.h"

DSJ_JSON_INSTANCES(template, nlohmann::basic_json<>)
DSJ_JSON_INSTANCES(template, nlohmann::basic_json<nlohmann::ordered_map>)
