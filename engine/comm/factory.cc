// make_collectives(): checks the options and picks the backend.
#include "engine/comm/collectives.h"
#include "engine/comm/single.h"

namespace dsj::comm {

Result<std::unique_ptr<Collectives>> make_collectives(Options options) {
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world) {
    return bad_input("rank " + std::to_string(options.rank) + " of a world of " +
                     std::to_string(options.world) + " ranks: expected 0 <= rank < world");
  }
  if (options.world == 1) return make_single(options.device);
  return fail(ErrorKind::Environment,
              "no backend for " + std::to_string(options.world) + " ranks is in this build yet");
}

}  // namespace dsj::comm
