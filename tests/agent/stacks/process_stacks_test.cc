// The stacks of another process: asleep, computing, stopped, gone. The processes are real.
#include "agent/stacks/process_stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <functional>
#include <thread>

#include "agent/ranks/spawn.h"
#include "agent/stacks/traced_thread.h"
#include "tests/support/soon.h"

namespace dsj::agent {
namespace {

using testing::HasSubstr;

// Not inlined and not ended by a jump, so that they stand on the stack.
[[gnu::noinline]] int sleeps_for_ever() {
  int count = 0;
  for (;;) count += pause();
  return count;
}
volatile uint64_t turns = 0;
[[gnu::noinline]] int computes_for_ever() {
  for (;;) turns = turns + 1;
  return 0;
}
// A frame that only the base pointer finds: its size is not known to the compiler.
[[gnu::noinline]] int sleeps_below_a_frame_of_any_size(int size) {
  auto* room = static_cast<volatile char*>(__builtin_alloca(static_cast<size_t>(size)));
  room[0] = 1;
  return sleeps_for_ever() + room[0];
}
void on_signal(int) {
  sleeps_for_ever();
}
[[gnu::noinline]] int is_interrupted() {
  signal(SIGUSR1, on_signal);
  return raise(SIGUSR1) + static_cast<int>(turns);
}

class Child {
 public:
  explicit Child(const std::function<int()>& run) : pid(fork()) {
    if (pid != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t none;  // other tests of this program block some
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    setpgid(0, 0);
    _exit(run() & 1);
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  char state() const {
    const std::string line = of_thread(pid, pid, "stat");
    const size_t name = line.rfind(')');
    return name == std::string::npos ? '?' : line[name + 2];
  }
  const pid_t pid;
};

std::string text_of(const ThreadStack& thread) {
  std::string text;
  for (const auto& frame : thread.frames) text += frame.function + " (" + frame.file + ")\n";
  return text + thread.problem;
}

/// Of the first thread, once `word` is in it.
ThreadStack first_with(pid_t pid, const std::string& word) {
  ThreadStack found;
  EXPECT_TRUE(soon([&] {
    const auto stacks = stacks_of(pid);
    EXPECT_TRUE(stacks) << stacks.error().to_string();
    if (stacks) found = stacks->front();
    return !stacks || text_of(found).find(word) != std::string::npos;
  })) << text_of(found);
  return found;
}

TEST(ProcessStacks, OfAProcessThatSleepsGoUpToMain) {
  const Child child(sleeps_for_ever);
  const ThreadStack first = first_with(child.pid, "sleeps_for_ever");
  EXPECT_EQ(first.thread, child.pid);
  EXPECT_EQ(first.problem, "") << text_of(first);
  EXPECT_THAT(text_of(first), HasSubstr("dsj::agent::(anonymous namespace)::sleeps_for_ever() "));
  EXPECT_THAT(text_of(first), HasSubstr("main ("));
  EXPECT_TRUE(soon([&] { return child.state() == 'S'; })) << "it sleeps on";
}

/// From now on the calling thread, and no other, may not call process_vm_readv.
bool forbid_reading_at_once() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = std::size(program), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(ProcessStacks, UnderAProfileThatAllowsOnlyPtrace) {  // containerd's RuntimeDefault
  const Child child(sleeps_for_ever);
  first_with(child.pid, "sleeps_for_ever");
  bool forbidden = false;
  ThreadStack first;
  std::thread([&] {
    forbidden = forbid_reading_at_once();
    if (const auto stacks = stacks_of(child.pid)) first = stacks->front();
  }).join();
  ASSERT_TRUE(forbidden);
  EXPECT_EQ(first.problem, "") << text_of(first);
  EXPECT_THAT(text_of(first), HasSubstr("main ("));
}

TEST(ProcessStacks, OfAProcessThatComputesAndGoesOn) {
  const Child child(computes_for_ever);
  const ThreadStack first = first_with(child.pid, "computes_for_ever");
  EXPECT_EQ(first.problem, "") << text_of(first);
  EXPECT_TRUE(soon([&] { return child.state() == 'R'; })) << "it computes on";
}

TEST(ProcessStacks, OfAStoppedProcessWhichStaysStopped) {
  const Child sleeper(sleeps_for_ever), worker(computes_for_ever);
  for (const Child* child : {&sleeper, &worker}) {
    const std::string function = child == &sleeper ? "sleeps_for_ever" : "computes_for_ever";
    first_with(child->pid, function);
    kill(child->pid, SIGSTOP);
    ASSERT_TRUE(soon([&] { return child->state() == 'T'; }));
    EXPECT_EQ(first_with(child->pid, function).problem, "");
    EXPECT_TRUE(soon([&] { return child->state() == 'T'; }));
  }
}

TEST(ProcessStacks, OfAFrameThatOnlyTheBasePointerFinds) {
  const Child child([] { return sleeps_below_a_frame_of_any_size(getpid() % 100 + 100); });
  const ThreadStack first = first_with(child.pid, "of_any_size");
  EXPECT_THAT(text_of(first), HasSubstr("main ("));
  EXPECT_EQ(first.problem, "");
}

TEST(ProcessStacks, OfASignalsHandlerGoUpToWhatItInterrupted) {
  const Child child(is_interrupted);
  const std::string text = text_of(first_with(child.pid, "sleeps_for_ever"));
  EXPECT_THAT(text, HasSubstr("on_signal"));
  EXPECT_THAT(text, HasSubstr("is_interrupted"));
  EXPECT_THAT(text, HasSubstr("main ("));
}

TEST(ProcessStacks, OfEveryThreadWithItsName) {
  const Child child([] {
    std::thread other([] {
      prctl(PR_SET_NAME, "reader");
      computes_for_ever();
    });
    return sleeps_for_ever();
  });
  std::vector<ThreadStack> all;
  ASSERT_TRUE(soon([&] {
    all = stacks_of(child.pid).value_or(std::vector<ThreadStack>());
    return all.size() == 2 && all[1].name == "reader" &&
           text_of(all[0]).find("sleeps_for_ever") != std::string::npos &&
           text_of(all[1]).find("computes_for_ever") != std::string::npos;
  }));
  EXPECT_EQ(all[0].thread, child.pid);
  EXPECT_EQ(all[1].problem, "") << text_of(all[1]);
}

TEST(ProcessStacks, OfAForeignProgramHaveTheNamesOfItsLibraries) {
  const auto pid = spawn({.command = {"sleep", "1000"}});
  ASSERT_TRUE(pid) << pid.error().to_string();
  const ThreadStack first = first_with(*pid, "nanosleep");
  EXPECT_THAT(first.frames.front().file, testing::StartsWith("libc"));
  kill(*pid, SIGKILL);
  EXPECT_TRUE(soon([&] { return reap(*pid).has_value(); }));
}

TEST(ProcessStacks, OfAProgramThatAShellStartedAreFoundByTheGroup) {
  const auto shell = spawn({.command = {"sh", "-c", "sleep 1000; true"}});
  ASSERT_TRUE(shell) << shell.error().to_string();
  std::vector<pid_t> group;
  ASSERT_TRUE(soon([&] { return (group = group_of(*shell)).size() == 2; }));
  EXPECT_EQ(group[0], *shell);
  first_with(group[1], "nanosleep");
  signal_group(*shell, SIGKILL);
  EXPECT_TRUE(soon([&] { return reap(*shell).has_value(); }));
  EXPECT_EQ(group_of(1 << 30), std::vector<pid_t>{1 << 30});
}

TEST(ProcessStacks, OfAProcessThatIsGoneAreAnError) {
  pid_t gone = 0;
  {
    const Child child(sleeps_for_ever);
    gone = child.pid;
    kill(gone, SIGKILL);
    ASSERT_TRUE(soon([&] { return child.state() == 'Z'; }));
    const auto ended = stacks_of(gone);
    ASSERT_FALSE(ended);
    EXPECT_EQ(ended.error().message, "it is gone");
  }
  const auto stacks = stacks_of(gone);
  ASSERT_FALSE(stacks);
  EXPECT_EQ(stacks.error().kind, ErrorKind::Environment);
  EXPECT_EQ(stacks.error().message, "it is gone");
}

/// What the tracer never may do: swallow a signal that comes while it holds a thread, or let the
/// thread's parent take the hold for an end.
TEST(HeldThread, LetsSignalsThroughAndIsNoEndForTheParent) {
  const Child child([] {
    signal(SIGTERM, [](int) { _exit(7); });
    return computes_for_ever();
  });
  first_with(child.pid, "computes_for_ever");
  {
    const HeldThread held(child.pid);
    ASSERT_TRUE(held.registers()) << held.problem();
    EXPECT_FALSE(reap(child.pid)) << "it only stands still";
    bury_orphans([](pid_t) { return false; });
    kill(child.pid, SIGTERM);
  }
  EXPECT_TRUE(soon([&] { return child.state() == 'Z'; }));
  const auto exit = reap(child.pid);
  ASSERT_TRUE(exit);
  EXPECT_EQ(exit->exit_code, 7);
  EXPECT_EQ(exit->signal, 0);
}

TEST(HeldThread, SaysWhyItCannotHold) {
  const HeldThread held(1 << 30);
  EXPECT_FALSE(held.registers());
  EXPECT_EQ(held.problem(), "No such process");
}

}  // namespace
}  // namespace dsj::agent
