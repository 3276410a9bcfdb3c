// Receives the API server's answers to writes, so that a cache does not have to wait for its watch.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dsj::op {

class Writes {
 public:
  virtual ~Writes() = default;
  virtual void wrote(const std::string& kind, const nlohmann::json& object) = 0;
  /// The server no longer has the object with that name and uid.
  virtual void absent(const std::string& /*kind*/, const std::string& /*ns*/,
                      const std::string& /*name*/, const std::string& /*uid*/) {}
};

}  // namespace dsj::op
