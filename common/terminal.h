// What an output can show.
// Tested by: tests/common/terminal_test.cc
#pragma once

namespace dsj {

/// TERM=dumb: a terminal that neither moves its cursor nor draws (Emacs's shell, some CI logs).
bool is_dumb_terminal();
/// Whether `fd` is a terminal that can draw over its lines.
bool draws_over(int fd);

}  // namespace dsj
