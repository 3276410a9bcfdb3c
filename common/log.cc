#include "common/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace dsj::log {
namespace {
spdlog::logger& logger() {
  static auto instance = spdlog::stderr_color_mt("dsj");
  return *instance;
}
}  // namespace

void init(const std::string& prefix) {
  logger().set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ [" + prefix + "] %v");
  logger().flush_on(spdlog::level::info);
}
void info(const std::string& message) {
  logger().info("{}", message);
}
void warn(const std::string& message) {
  logger().warn("{}", message);
}
void error(const std::string& message) {
  logger().error("{}", message);
}

}  // namespace dsj::log
