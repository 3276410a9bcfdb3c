// dsj-operator: runs DeepSpeedJobs on a Kubernetes cluster (docs/operate.md).
#include <malloc.h>
#include <signal.h>

#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "common/standard_streams.h"
#include "common/version/version.h"
#include "job/contract.h"
#include "kube/api_transport.h"
#include "kube/kubeconfig.h"
#include "operator/observe/pace.h"
#include "operator/run.h"

namespace {

using namespace dsj;

int exit_code_of(const Error& error) {
  log::error(error.to_string());
  return error.kind == ErrorKind::BadInput ? contract::kExitBadInput : contract::kExitEnvironment;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_streams();
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const auto over = answer_version("dsj-operator", words))
    return *over == 0 ? 0 : contract::kExitBadInput;
  int exit_code = 0;
  const auto options = op::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  log::init("operator");
  mallopt(M_ARENA_MAX, 2);  // an arena per thread would keep the memory of each burst
  // Blocked before any thread starts, so that only the waiting thread receives them.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const auto access = options->kubeconfig.empty()
                          ? kube::find_access()
                          : kube::access_from_kubeconfig_file(options->kubeconfig);
  if (!access) return exit_code_of(access.error());
  const auto transport = kube::make_api_transport(
      *access, static_cast<size_t>(options->workers * op::kCreatesAtOnce + options->workers));
  if (!transport) return exit_code_of(transport.error());
  kube::Cancel stop;
  std::thread waiting([&] {
    int number = 0;
    sigwait(&signals, &number);
    log::info("signal " + std::to_string(number) + ": stopping");
    stop.cancel();
  });
  const auto status = op::run_operator(*options, **transport, kube::system_clock(),
                                       access->default_namespace, stop);
  if (!stop.cancelled()) pthread_kill(waiting.native_handle(), SIGTERM);
  waiting.join();
  return status ? contract::kExitDone : exit_code_of(status.error());
}
