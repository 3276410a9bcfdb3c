// The key table as people and scripts read it: docs/ds_config.md (`make docs`) and JSON
// (`dsj validate --keys json`). Refuses to print a table that claims what no test holds. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/dsconfig/keys.h"
#include "common/result.h"

namespace dsj::dsconfig {

/// "works", "no effect by nature", "warned", "refused", "error", "with its section".
const char* name_of(State state);

/// What keeps the table from being printed, one line per key: a key that Works and names no test,
/// one that does not and gives no reason, a name that is not "PROGRAM:Suite.Test" or a script's.
/// Whether the named tests exist is looked up in the built programs by
/// tests/structure/keys_test.py.
std::vector<std::string> problems_of(const std::vector<Key>& table);

/// The whole of docs/ds_config.md. Error: problems_of() is not empty.
Result<std::string> key_table_markdown(const std::vector<Key>& table = all_keys());
/// {"counts": {state: n}, "keys": [{"path", "aliases", "type", "range", "default", "default013",
/// "stages", "auto", "state", "reason", "tests"}]}. Error as above.
Result<nlohmann::json> key_table_json(const std::vector<Key>& table = all_keys());

}  // namespace dsj::dsconfig
