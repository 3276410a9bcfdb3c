// The key table for people and scripts: docs/ds_config.md (`make docs`) and JSON (`dsj validate
// --keys json`). It refuses to print a table that claims what no test holds. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/keys.h"

namespace dsj::dsconfig {

/// "works", "no effect by nature", "warned", "refused", "error", "with its section".
const char* name_of(State state);

/// What keeps the table from being printed, one line per key: a key that Works and names no test, a
/// key that does not and gives no reason, a name that is neither "PROGRAM:Suite.Test" nor a
/// script's. tests/structure/keys_test.py checks in the built programs that the tests exist.
std::vector<std::string> problems_of(const std::vector<Key>& table);

/// All of docs/ds_config.md. Error: problems_of() is not empty.
Result<std::string> key_table_markdown(const std::vector<Key>& table = all_keys());
/// {"counts": {state: n}, "keys": [{"path", "aliases", "type", "range", "default", "default013",
/// "stages", "auto", "state", "reason", "tests"}]}. Error: as above.
Result<nlohmann::json> key_table_json(const std::vector<Key>& table = all_keys());

}  // namespace dsj::dsconfig
