// Prints the key table for people (docs/ds_config.md, `make docs`) and as JSON (`dsj validate
// --keys json`). It refuses to print a table with claims that no test covers. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/result.h"
#include "job/dsconfig/keys/keys.h"

namespace dsj::dsconfig {

/// "works", "no effect by nature", "warned", "refused", "error", "with its section".
const char* name_of(State state);

/// Problems that prevent printing, one line per key: a key that Works without a test, another key
/// without a reason, a test name that is neither "PROGRAM:Suite.Test" nor a script's.
/// tests/structure/keys_test.py checks that the built programs contain the tests.
std::vector<std::string> problems_of(const std::vector<Key>& table);

/// The text of docs/ds_config.md. Errors: if problems_of() is not empty.
Result<std::string> key_table_markdown(const std::vector<Key>& table = all_keys());
/// {"counts": {state: n}, "keys": [{"path", "aliases", "type", "range", "default", "default013",
/// "stages", "auto", "state", "reason", "tests"}]}. Error: as above.
Result<nlohmann::json> key_table_json(const std::vector<Key>& table = all_keys());

}  // namespace dsj::dsconfig
