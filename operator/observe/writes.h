// Who hears what an API server answered to a write, so that a cache need not wait for its watch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::op {

class Writes {
 public:
  virtual ~Writes() = default;
  virtual void wrote(const std::string& kind, const nlohmann::json& object) = 0;
  /// The server does not have the object of that name and uid any more.
  virtual void absent(const std::string& /*kind*/, const std::string& /*ns*/,
                      const std::string& /*name*/, const std::string& /*uid*/) {}
};

}  // namespace dsj::op
