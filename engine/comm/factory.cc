// make_collectives(): checks the options and picks the backend.
#include <algorithm>
#include <array>
#include <sstream>

#include "common/log.h"
#include "engine/comm/backends.h"
#include "engine/comm/collectives.h"
#include "engine/comm/nccl.h"
#include "engine/comm/queued.h"
#include "engine/comm/shm_segment.h"
#include "engine/comm/single.h"
#include "engine/comm/split.h"

namespace dsj::comm {
namespace {

constexpr std::array<std::string_view, 6> kBackends{"auto", "gloo",         "ring",
                                                    "shm",  "hierarchical", "nccl"};

Status check(const Options& options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return bad_input("rank " + std::to_string(options.rank) + " of a world of " +
                     std::to_string(options.world) + " ranks: expected 0 <= rank < world");
  }
  if (std::ranges::find(kBackends, options.backend) == kBackends.end()) {
    return bad_input("unknown backend \"" + options.backend + "\"", {},
                     "one of auto, gloo, ring, shm, hierarchical, nccl");
  }
  if (options.master_port < 1 || options.master_port > 65535) {
    return bad_input("port " + std::to_string(options.master_port) + " is not in 1..65535");
  }
  if (options.timeout < std::chrono::milliseconds(1)) {
    return bad_input("the timeout of collectives must be at least 1 ms");
  }
  return {};
}

MakeNccl nccl = nullptr;  // set when libdsj_cuda.so is loaded

/// A single rank needs no backend. It still uses NCCL by name, so that one GPU suffices to try it.
bool is_alone(const Options& options) {
  return options.world == 1 && options.backend != "nccl";
}

/// CUDA tensors need nccl, CPU tensors another backend.
Status check_device(const Options& options) {
  if (options.device.is_cpu()) {
    if (options.backend != "nccl") return {};
    return fail(ErrorKind::Environment, "backend nccl needs tensors on a CUDA device");
  }
  if (!options.device.is_cuda() || nccl == nullptr) {
    return fail(ErrorKind::Environment,
                "there are no collectives for device " + options.device.str() +
                    (options.device.is_cuda() ? ": libdsj_cuda.so is not open" : ""));
  }
  if (options.backend == "auto" || options.backend == "nccl") return {};
  return bad_input("backend " + options.backend + " does not carry CUDA tensors", {},
                   "auto or nccl");
}

/// Every rank learns rank 0's view of all hosts, which is the same for all.
Result<Topology> agree_on_topology(Rendezvous& rendezvous) {
  const std::string& host = rendezvous.options().host;
  DSJ_TRY(const std::string text,
          rendezvous.settle("hosts", host.empty() ? host_identity() : host,
                            [](const auto& hosts) { return text_of(topology_of(hosts)); }));
  return parse_topology(text);
}

void say(const Rendezvous& rendezvous, const std::string& text) {
  if (rendezvous.options().rank == 0 && rendezvous.names().empty()) log::info(text);
}

Result<std::unique_ptr<Transport>> make_best_transport(Rendezvous& rendezvous,
                                                       const Topology& topology) {
  std::string because = topology.because;
  if (topology.way != Way::Flat) {
    const bool shared = topology.way == Way::Shared;
    Result<std::unique_ptr<Transport>> best =
        shared ? Result<std::unique_ptr<Transport>>(make_shm(rendezvous))
               : make_hierarchical(rendezvous, topology);
    if (best && !shared) {
      say(rendezvous,
          "collectives in two levels, shared memory within a host and TCP between "
          "hosts: " +
              because);
    }
    // All ranks have the same verdict, so all go on to the ring or none.
    if (best || best.error().kind != ErrorKind::Environment) return best;
    because = best.error().message;
  }
  say(rendezvous, "collectives over TCP, one ring of all ranks: " + because);
  return make_ring(rendezvous);
}

Result<std::unique_ptr<Transport>> make_cpu_transport(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  if (options.backend == "gloo") return make_gloo(rendezvous);
  if (options.backend == "ring") return make_ring(rendezvous);
  if (options.backend == "shm") return make_shm(rendezvous);
  DSJ_TRY(const Topology topology, agree_on_topology(rendezvous));
  if (options.backend == "hierarchical") {
    if (topology.way == Way::Levels) return make_hierarchical(rendezvous, topology);
    (void)rendezvous.finish();  // all ranks call it; rank 0 serves the store until then
    return fail(ErrorKind::Environment,
                "backend hierarchical needs hosts of equally many "
                "consecutive ranks, two or more: " +
                    topology.because);
  }
  return make_best_transport(rendezvous, topology);
}

/// Rank 0's answer: each backend that a rank asked for, as "RANK NAME" with its first rank.
std::string first_of_each(const std::vector<std::string>& wanted) {
  std::vector<std::string> seen;
  std::string text;
  for (std::size_t rank = 0; rank < wanted.size(); ++rank) {
    if (std::ranges::find(seen, wanted[rank]) != seen.end()) continue;
    seen.push_back(wanted[rank]);
    text += std::to_string(rank) + " " + wanted[rank] + " ";
  }
  return text;
}

/// Checks that all ranks are here, with the same messages for every backend, and want the same
/// backend. With "auto" a GPU rank wants nccl, and CPU ranks would wait for it in another backend.
Status agree_on_backend(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  const std::string own = options.device.is_cuda() ? "nccl" : options.backend;
  DSJ_TRY(const std::string wanted, rendezvous.settle("backend", own, first_of_each));
  std::istringstream each(wanted);
  std::string rank, other;
  while (each >> rank >> other) {
    if (other == own) continue;
    // All ranks see the difference and come here. Rank 0 serves the store until then.
    (void)rendezvous.finish();
    const std::string here = "rank " + std::to_string(rendezvous.name(options.rank));
    const std::string there = "rank " + std::to_string(rendezvous.name(std::stoi(rank)));
    if (own == "nccl" || other == "nccl") {
      const bool gpu = own == "nccl";
      return fail(ErrorKind::Environment,
                  here + (gpu ? " trains on a GPU, " : " trains on the CPU, ") + there +
                      (gpu ? " on the CPU" : " on a GPU"),
                  "training.device", "set it to cpu, or to cuda, which says why a rank has no GPU");
    }
    return bad_input(here + " wants backend " + own + ", " + there + " " + other);
  }
  return {};
}

/// Lets `group` split as long as it keeps the store of its rendezvous.
void keep_splitting(Collectives& group, const Rendezvous& rendezvous) {
  group.split_by([kept = std::shared_ptr<Rendezvous>(rendezvous.again()),
                  count = 0](const Part& part) mutable -> Result<std::unique_ptr<Collectives>> {
    const std::string key = "split " + std::to_string(++count);
    DSJ_TRY(const std::unique_ptr<Rendezvous> mine, split(*kept->again(), key, part));
    if (!mine) return std::unique_ptr<Collectives>();
    DSJ_TRY(auto made, join(*mine));
    made->is_part(part.name, mine->names());
    return made;
  });
}

Result<std::unique_ptr<Collectives>> join_backend(Rendezvous& rendezvous) {
  const Options& options = rendezvous.options();
  if (is_alone(options)) return make_single(options.device);
  DSJ_TRY_STATUS(agree_on_backend(rendezvous));
  if (options.device.is_cuda()) {
    DSJ_TRY(std::unique_ptr<Collectives> group, nccl(rendezvous));
    DSJ_TRY_STATUS(rendezvous.finish());
    return group;
  }
  DSJ_TRY(std::unique_ptr<Transport> transport, make_cpu_transport(rendezvous));
  DSJ_TRY_STATUS(rendezvous.finish());
  return make_queued(std::move(transport), options.rank, options.world, options.timeout);
}

}  // namespace

Result<std::unique_ptr<Collectives>> join(Rendezvous& rendezvous) {
  DSJ_TRY(auto group, join_backend(rendezvous));
  group->note_in(rendezvous.flight().get());
  // Keeping the rendezvous keeps a part's flight log alive; parts can be split like their group.
  if (rendezvous.options().splits) keep_splitting(*group, rendezvous);
  return group;
}

void provide_nccl(MakeNccl make) {
  nccl = make;
}

Result<std::unique_ptr<Collectives>> make_collectives(Options options) {
  DSJ_TRY_STATUS(check(options));
  if (is_alone(options)) return make_single(options.device);
  DSJ_TRY_STATUS(check_device(options));
  DSJ_TRY(const std::unique_ptr<Rendezvous> rendezvous, Rendezvous::open(options));
  return join(*rendezvous);
}

}  // namespace dsj::comm
