/* The one process of a pod's sandbox: the pod's namespaces live as long as it does. Its children are orphans of the pod's
   containers; ignoring SIGCHLD has the kernel reap them. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  signal(SIGCHLD, SIG_IGN);
  signal(SIGTERM, end);
  signal(SIGINT, end);
  while (1) pause();
}
