#include "kube/plugin_source.h"

#include <unistd.h>

#include "kube/certificate_source.h"

namespace dsj::kube {
namespace {

NetError without_credential(const ExecPlugin& plugin, const std::string& what,
                            const std::string& advice = {}) {
  return {NetError::Kind::Credentials, plugin.where + ": the credential plugin \"" +
                                           plugin.command + "\" " + what +
                                           (advice.empty() ? "" : "\n" + advice)};
}

NetError not_run(const ExecPlugin& plugin, const ProgramFailure& failure) {
  using Kind = ProgramFailure::Kind;
  switch (failure.kind) {
    case Kind::NotFound:
      return without_credential(plugin,
                                plugin.command.contains('/')
                                    ? "is not there"
                                    : "is not installed: PATH has no such program",
                                plugin.install_hint);
    case Kind::Timeout:
      return without_credential(
          plugin, "did not end within " + std::to_string(kPluginTime.count()) + " minutes");
    case Kind::Cancelled:
      return {NetError::Kind::Cancelled, "cancelled"};
    case Kind::TooLong:
      return without_credential(plugin, "printed more than an ExecCredential");
    case Kind::NotStarted:
      break;
  }
  return without_credential(plugin, "cannot be started: " + failure.message);
}

}  // namespace

PluginSource::PluginSource(ExecPlugin plugin, Programs& programs, Surroundings surroundings)
    : plugin_(std::move(plugin)), programs_(programs), surroundings_(std::move(surroundings)) {}

std::expected<PluginSource::Issued, NetError> PluginSource::current(const Cancel& cancel) {
  const std::lock_guard lock(mutex_);
  if (issued_) {
    const auto& expires = issued_->credential.expires;
    if (!expires || surroundings_.now() <= *expires) return *issued_;
  }
  auto credential = run(cancel);
  if (!credential) return std::unexpected(credential.error());
  issued_ = Issued{std::move(*credential), ++runs_};
  return *issued_;
}

void PluginSource::refused(int64_t generation) {
  const std::lock_guard lock(mutex_);
  if (issued_ && issued_->generation == generation) issued_.reset();
}

std::expected<ExecCredential, NetError> PluginSource::run(const Cancel& cancel) {
  const bool terminal = plugin_.stdin_mode != ExecPlugin::Stdin::Never && surroundings_.terminal();
  if (plugin_.stdin_mode == ExecPlugin::Stdin::Always && !terminal) {
    return std::unexpected(without_credential(
        plugin_, "asks its user (interactiveMode: Always), and standard input is not a terminal"));
  }
  Program program{
      .command = {plugin_.command}, .environment = plugin_.env, .stdin_of_ours = terminal};
  program.command.insert(program.command.end(), plugin_.args.begin(), plugin_.args.end());
  program.environment.emplace_back(kExecInfoVariable, exec_info(plugin_, terminal));
  const auto end = programs_.run(program, kPluginTime, cancel);
  if (!end) return std::unexpected(not_run(plugin_, end.error()));
  if (end->exit_code != 0) {
    return std::unexpected(without_credential(
        plugin_,
        "failed with exit code " + std::to_string(end->exit_code) + "; its stderr has the reason"));
  }
  auto credential = read_exec_credential(plugin_, end->output);
  if (!credential) {
    return std::unexpected(NetError{NetError::Kind::Credentials, credential.error().to_string()});
  }
  if (!credential->key_pem.empty() &&
      !fit_together(credential->certificate_pem, credential->key_pem)) {
    return std::unexpected(without_credential(plugin_,
                                              "answered with a certificate or a key that cannot be "
                                              "read, or that do not match"));
  }
  return std::move(*credential);
}

}  // namespace dsj::kube
