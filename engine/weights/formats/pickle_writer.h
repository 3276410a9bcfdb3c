// Writes Python values as pickle opcodes of protocol 2, which torch.save uses. Each function
// returns the opcodes that push one value. pickle.h reads them.
// Tested by: tests/engine/weights/torch_writer_test.cc
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dsj::weights::pickled {

using Value = std::string;
using Items = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

Value none();
Value boolean(bool value);
Value integer(int64_t value);
Value real(double value);
/// UTF-8, below 4 GiB.
Value str(const std::string& value);
Value tuple(const Items& items);
Value list(const Items& items);
Value dict(const Entries& entries);
/// collections.OrderedDict.
Value ordered_dict(const Entries& entries);
/// module.name, a class or a function.
Value global(const std::string& module, const std::string& name);
/// function(*arguments).
Value call(const Value& function, const Items& arguments);
/// An instance of module.name with this __dict__; its constructor is not called.
Value object(const std::string& module, const std::string& name, const Entries& state);
/// torch.Size.
Value torch_size(const std::vector<int64_t>& shape);

/// Entries with text keys.
Entries named(const std::vector<std::pair<std::string, Value>>& entries);

}  // namespace dsj::weights::pickled
