// A peer that writes what it likes to a port of this machine.
#pragma once

#include <string>

namespace dsj {

/// Sends, then reads until the other side ends the connection.
std::string raw_http(int port, const std::string& request);
std::string raw_http(const std::string& address, int port, const std::string& request);
/// Sends, then reads one whole answer.
std::string raw_ask(int port, const std::string& request);
/// A connection, to be closed by the caller.
int raw_connect(int port, const std::string& address = "127.0.0.1");
/// One whole answer, by its Content-Length; less where the other side ends the connection before.
std::string raw_answer(int fd);

}  // namespace dsj
