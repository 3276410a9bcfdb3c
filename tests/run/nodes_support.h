// Several `dsj run` on this machine as the nodes of one run, in one directory, each with an output of its own.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <string>
#include <vector>

#include "tests/run/run_support.h"

namespace dsj::run_test {

class NodesTest : public RunTest {
 protected:
  /// A port that nobody has now.
  static int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
    close(fd);
    return ntohs(address.sin_port);
  }

  void start_line(int node, const std::vector<std::string>& words) {
    auto environment = this->environment();
    for (const std::string& entry : environment_[node]) environment.push_back(entry);
    const std::string file = "said-" + std::to_string(node);
    agent::SpawnSpec spec{
        .command = {"/bin/sh", "-c",
                    "cd " + folder_.string() + " && exec \"$0\" \"$@\" >>" + file + " 2>&1",
                    std::string(DSJ_BIN_DIR) + "/dsj", "run"},
        .environment = environment,
        .log_file = at("both")};
    spec.command.insert(spec.command.end(), words.begin(), words.end());
    const auto pid = agent::spawn(spec);
    ASSERT_TRUE(pid) << pid.error().to_string();
    pids_[node] = *pid;
  }
  /// As torchrun's static rendezvous is called.
  void start_node(int node, int nodes, std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"--nnodes=" + std::to_string(nodes), "--node-rank=" + std::to_string(node),
                  "--master_addr", "127.0.0.1", "--master_port=" + std::to_string(port_)});
    start_line(node, words);
  }
  void start_nodes(int nodes, const std::vector<std::string>& words) {
    for (int node = 0; node < nodes; ++node) start_node(node, nodes, words);
  }
  /// As finish().
  int finish_node(int node) {
    pid_ = pids_[node];
    return finish();
  }
  void signal_node(int node, int number) { kill(pids_[node], number); }
  /// With everything that it started, as where its machine is lost.
  void kill_node(int node) {
    kill(pids_[node], SIGSTOP);  // or it starts another agent
    for (const pid_t pid : processes()) {
      const std::string own = "/proc/" + std::to_string(pid) + "/";
      const std::string agent = std::string("--worker") + '\0' + std::to_string(node) + '\0';
      const bool of_node = rank_is_of(own, node) || read_text(own + "cmdline").contains(agent);
      if (of_node) kill(pid, SIGKILL);
    }
    kill(pids_[node], SIGKILL);
    (void)finish_node(node);
  }
  std::string said(int node) const { return read_text(at("said-" + std::to_string(node))); }

  std::map<int, std::vector<std::string>> environment_;
  std::map<int, pid_t> pids_;
  const int port_ = free_port();

 private:
  static bool rank_is_of(const std::string& process, int node) {
    const std::string text = '\0' + read_text(process + "environ");
    return text.find(std::string(1, '\0') + "GROUP_RANK=" + std::to_string(node) + '\0') !=
           std::string::npos;
  }
};

}  // namespace dsj::run_test
