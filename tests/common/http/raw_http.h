// A peer that writes what it likes to a port of this machine.
#pragma once

#include <string>

namespace dsj {

/// Sends, then reads until the other side ends the connection or `wait_ms` pass without a byte.
std::string raw_http(int port, const std::string& request, int wait_ms = 10'000);
std::string raw_http(const std::string& address, int port, const std::string& request);
/// A connection, to be closed by the caller.
int raw_connect(int port, const std::string& address = "127.0.0.1");
/// What comes until the end, or until `wait_ms` pass without a byte.
std::string raw_read(int fd, int wait_ms);

}  // namespace dsj
