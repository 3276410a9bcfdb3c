// Ranks as threads of one test process, each with its own memory ledger: for numbers, not for
// crashes.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/collectives.h"
#include "engine/memory/counting_allocator.h"

namespace dsj::testing_support {

struct ListeningSocket {
  int fd = -1, port = 0;
};
/// A listening socket on a free port of the loopback.
inline ListeningSocket listen_anywhere() {
  ListeningSocket made{::socket(AF_INET, SOCK_STREAM, 0)};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(made.fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(made.fd, 64), 0);
  ::getsockname(made.fd, reinterpret_cast<sockaddr*>(&address), &length);
  made.port = ntohs(address.sin_port);
  return made;
}

/// Calls body(collectives, ledger) once per rank; returns when all are done. What a rank throws
/// fails the test. `splits`: the body may split the group.
inline void run_ranks(int world,
                      const std::function<void(comm::Collectives&, memory::Ledger&)>& body,
                      const std::string& backend = "auto", bool splits = false) {
  memory::install();
  at::set_num_threads(1);
  const ListeningSocket socket = world > 1 ? listen_anywhere() : ListeningSocket{-1, 29500};
  std::vector<memory::Ledger> ledgers(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      c10::AutoGradMode no_autograd(false);
      try {
        auto collectives = comm::make_collectives({.rank = rank,
                                                   .world = world,
                                                   .master_port = socket.port,
                                                   .store_listen_fd = rank == 0 ? socket.fd : -1,
                                                   .timeout = std::chrono::seconds(300),
                                                   .backend = world == 1 ? "auto" : backend,
                                                   .splits = splits});
        if (!collectives) {
          ADD_FAILURE() << collectives.error().to_string();
          return;
        }
        memory::MemoryScope scope(memory::Class::Activations, ledgers[rank]);
        body(**collectives, ledgers[rank]);
        (*collectives)->shutdown();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace dsj::testing_support
