#include "kube/plugin_source.h"

#include <gtest/gtest.h>

#include <deque>
#include <nlohmann/json.hpp>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;
using PluginAnswer = std::expected<ProgramEnd, ProgramFailure>;

/// Plugins that answer what a test has put down for them.
class FakePrograms final : public Programs {
 public:
  std::deque<PluginAnswer> answers;
  std::vector<Program> runs;

  PluginAnswer run(const Program& program, std::chrono::milliseconds, const Cancel&) override {
    runs.push_back(program);
    PluginAnswer answer = std::move(answers.front());
    answers.pop_front();
    return answer;
  }
};

PluginAnswer token_answer(const std::string& text, const std::string& expires = {}) {
  Json status = {{"token", text}};
  if (!expires.empty()) status["expirationTimestamp"] = expires;
  return ProgramEnd{Json{{"kind", "ExecCredential"},
                         {"apiVersion", "client.authentication.k8s.io/v1"},
                         {"status", status}}
                        .dump(),
                    0};
}

struct PluginWorld {
  FakePrograms programs;
  PluginSource::Wall::time_point now = *rfc3339_time("2026-01-31T12:00:00Z");
  bool terminal = false;
  ExecPlugin plugin{.api_version = "client.authentication.k8s.io/v1",
                    .command = "login",
                    .args = {"--cluster", "c"},
                    .env = {{"PROFILE", "p"}},
                    .install_hint = "Install it from example.test.",
                    .cluster_info = {},
                    .where = "config: user \"me\""};

  PluginSource source() {
    return PluginSource(plugin, programs,
                        {.now = [this] { return now; }, .terminal = [this] { return terminal; }});
  }
  std::string failure() {
    const auto issued = source().current({});
    if (issued) return "a credential";
    EXPECT_EQ(issued.error().kind, NetError::Kind::Credentials);
    return issued.error().message;
  }
};

TEST(PluginSource, RunsThePluginOnceUntilItsCredentialExpires) {
  PluginWorld world;
  world.programs.answers = {token_answer("one", "2026-01-31T12:10:00Z"), token_answer("two")};
  PluginSource source = world.source();
  for (const int minutes : {0, 5, 10}) {
    world.now = *rfc3339_time("2026-01-31T12:00:00Z") + std::chrono::minutes(minutes);
    EXPECT_EQ(source.current({})->credential.token, "one");
  }
  world.now += std::chrono::seconds(1);
  EXPECT_EQ(source.current({})->credential.token, "two");
  world.now += std::chrono::years(1);  // it does not say when it expires
  EXPECT_EQ(source.current({})->credential.token, "two");
  EXPECT_EQ(world.programs.runs.size(), 2u);
}

TEST(PluginSource, RunsItAgainAfterARefusalOnceForAllCallers) {
  PluginWorld world;
  world.programs.answers = {token_answer("one"), token_answer("two")};
  PluginSource source = world.source();
  const auto one = source.current({});
  source.refused(one->generation);
  EXPECT_EQ(source.current({})->credential.token, "two");
  source.refused(one->generation);  // a request that was on its way with the old one
  EXPECT_EQ(source.current({})->credential.token, "two");
  EXPECT_EQ(world.programs.runs.size(), 2u);
}

TEST(PluginSource, PassesArgumentsEnvironmentAndWhatItAsks) {
  PluginWorld world;
  world.programs.answers = {token_answer("one")};
  (void)world.source().current({});
  const Program& run = world.programs.runs.at(0);
  EXPECT_EQ(run.command, (std::vector<std::string>{"login", "--cluster", "c"}));
  ASSERT_EQ(run.environment.size(), 2u);
  EXPECT_EQ(run.environment[0], (std::pair<std::string, std::string>("PROFILE", "p")));
  EXPECT_EQ(run.environment[1].first, "KUBERNETES_EXEC_INFO");
  EXPECT_EQ(Json::parse(run.environment[1].second)["spec"]["interactive"], false);
}

TEST(PluginSource, HasStdinByItsModeAndTheTerminal) {
  using Stdin = ExecPlugin::Stdin;
  for (const bool terminal : {false, true}) {
    for (const Stdin mode : {Stdin::Never, Stdin::IfAvailable, Stdin::Always}) {
      PluginWorld world;
      world.terminal = terminal;
      world.plugin.stdin_mode = mode;
      world.programs.answers = {token_answer("one")};
      if (mode == Stdin::Always && !terminal) {
        EXPECT_NE(world.failure().find("standard input is not a terminal"), std::string::npos);
        EXPECT_TRUE(world.programs.runs.empty());
        continue;
      }
      ASSERT_TRUE(world.source().current({}));
      const Program& run = world.programs.runs.at(0);
      EXPECT_EQ(run.stdin_of_ours, terminal && mode != Stdin::Never);
      EXPECT_EQ(Json::parse(run.environment.back().second)["spec"]["interactive"],
                run.stdin_of_ours);
    }
  }
}

TEST(PluginSource, SaysWhatWentWrongAndWhatToDo) {
  using Kind = ProgramFailure::Kind;
  const std::string who = "config: user \"me\": the credential plugin \"login\" ";
  for (const auto& [answer, said] : std::initializer_list<std::pair<PluginAnswer, std::string>>{
           {std::unexpected(ProgramFailure{Kind::NotFound, "x"}),
            "is not installed: PATH has no such program\nInstall it from example.test."},
           {std::unexpected(ProgramFailure{Kind::NotStarted, "Permission denied"}),
            "cannot be started: Permission denied"},
           {std::unexpected(ProgramFailure{Kind::Timeout, ""}), "did not end within 5 minutes"},
           {std::unexpected(ProgramFailure{Kind::TooLong, ""}),
            "printed more than an ExecCredential"},
           {ProgramEnd{"secret", 254}, "failed with exit code 254; its stderr has the reason"}}) {
    PluginWorld world;
    world.programs.answers = {answer};
    EXPECT_EQ(world.failure(), who + said);
  }
  PluginWorld world;
  world.programs.answers = {ProgramEnd{"secret", 0}};
  EXPECT_NE(world.failure().find("not a JSON object"), std::string::npos);
  world.programs.answers = {ProgramEnd{
      R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",
          "status":{"clientCertificateData":"secret","clientKeyData":"secret"}})",
      0}};
  EXPECT_EQ(world.failure(), who +
                                 "answered with a certificate or a key that cannot be read, or "
                                 "that do not match");
}

TEST(PluginSource, ACancelledRunIsNoFailureOfThePlugin) {
  PluginWorld world;
  world.programs.answers = {std::unexpected(ProgramFailure{ProgramFailure::Kind::Cancelled, ""})};
  const auto issued = world.source().current({});
  ASSERT_FALSE(issued);
  EXPECT_EQ(issued.error().kind, NetError::Kind::Cancelled);
}

}  // namespace
}  // namespace dsj::kube
