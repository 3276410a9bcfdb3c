// A name that the system looks up for as long as a test wants. The program's getaddrinfo() is this file's: it asks the
// system for every other name.
#pragma once

namespace dsj {

/// While it lives, a look-up of kName does not end; then it finds nothing. One at a time.
class SlowName {
 public:
  static constexpr char kName[] = "slow.name.test";
  SlowName();
  ~SlowName();  ///< waits for the look-ups
  /// How many are under way.
  int asked() const;
};

}  // namespace dsj
