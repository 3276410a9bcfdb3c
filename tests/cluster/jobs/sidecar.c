// A container beside a worker: it runs until it is asked to go, and its exit code is no success.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void leave(int number) {
  (void)number;
  _exit(5);
}

int main(void) {
  signal(SIGTERM, leave);
  for (;;) pause();
}
