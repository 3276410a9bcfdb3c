// The webhook as it runs: its port against peers that mean no good, its bundle against an API
// server in memory.
#include "operator/webhook/webhook.h"

#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "kube/api_transport.h"
#include "operator/webhook/rotation.h"
#include "tests/common/http/raw_http.h"
#include "tests/kube/fake_api_server.h"
#include "tests/support/soon.h"

namespace dsj::op {
namespace {

using kube::Json;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

const kube::Resource kConfigurations{"admissionregistration.k8s.io", "v1",
                                     "validatingwebhookconfigurations",
                                     "ValidatingWebhookConfiguration", false};

std::string from_base64(const std::string& text) {
  std::string out(text.size(), '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  out.resize(size < 0 ? 0 : static_cast<size_t>(size));
  while (out.ends_with('\0')) out.pop_back();
  return out;
}

/// Wall time by hand; all else is the system's.
struct TestClock final : kube::Clock {
  milliseconds monotonic() const override { return kube::system_clock().monotonic(); }
  std::chrono::system_clock::time_point wall() const override {
    return kube::system_clock().wall() + milliseconds(ahead);
  }
  bool sleep(milliseconds, const kube::Cancel& cancel) override {
    return cancel.wait_for(milliseconds(5));  // as if a minute had passed
  }
  double random() override { return 0.5; }
  std::atomic<int64_t> ahead = 0;
};

struct WebhookTest : ::testing::Test {
  WebhookTest() {
    server.serve(kConfigurations, false);
    (void)user.create(kConfigurations, "",
                      {{"apiVersion", "admissionregistration.k8s.io/v1"},
                       {"kind", "ValidatingWebhookConfiguration"},
                       {"metadata", {{"name", "jobs"}}},
                       {"webhooks", {{{"name", "a"}, {"clientConfig", {{"url", "https://x"}}}}}}});
  }
  std::unique_ptr<Webhook> start(const std::string& identity, const std::string& name = "jobs") {
    auto started = Webhook::start({.address = "127.0.0.1:0",
                                   .configuration = name,
                                   .names = {"127.0.0.1", "s.n.svc"},
                                   .identity = identity},
                                  client, clock, [this](bool allowed) { ++(allowed ? yes : no); });
    EXPECT_TRUE(started) << started.error().to_string();
    return started ? std::move(*started) : nullptr;
  }
  std::string bundle() {
    const auto found = server.objects(kConfigurations).at(0);
    return from_base64(found["webhooks"][0]["clientConfig"].value("caBundle", ""));
  }
  size_t authorities() { return read_authorities(bundle()).size(); }
  /// Waits until replicas have read the bundle so many times more.
  void looks(int count) {
    const auto wanted = server.requests("GET") + count;
    EXPECT_TRUE(soon([&] { return server.requests("GET") >= wanted; }));
  }
  /// As the API server: trusts the bundle alone.
  std::expected<kube::Response, kube::NetError> post(int port, const std::string& body,
                                                     const std::string& path = "/validate") {
    auto transport = kube::make_api_transport(
        {.server = "https://127.0.0.1:" + std::to_string(port), .ca_pem = bundle()});
    EXPECT_TRUE(transport) << transport.error().to_string();
    return (*transport)
        ->call({.method = "POST", .path = path, .content_type = "application/json", .body = body},
               {});
  }

  kube::testing::FakeApiServer server;
  TestClock clock;
  kube::Client client{server, clock};
  kube::Client user{server, kube::system_clock()};
  std::atomic<int> yes = 0, no = 0;
};

std::string review_of(const std::string& outside) {
  const Json spec = {
      {"deepspeed", {{"config", {{"train_micro_batch_size_per_gpu", 1}}}}},
      {"training", {{"modelNameOrPath", "/m"}, {"dataPath", "/d"}, {"outputDir", outside}}}};
  return Json{{"apiVersion", "admission.k8s.io/v1"},
              {"kind", "AdmissionReview"},
              {"request",
               {{"uid", "u"},
                {"operation", "CREATE"},
                {"object",
                 {{"apiVersion", "training.dsj.dev/v1alpha1"},
                  {"kind", "DeepSpeedJob"},
                  {"metadata", {{"name", "tune"}}},
                  {"spec", spec}}}}}}
      .dump();
}

TEST_F(WebhookTest, TakesCertificatesThatOthersMountAndRenew) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "webhook-certificates";
  std::filesystem::create_directories(folder);
  const WebhookOptions options{.address = "127.0.0.1:0", .certificates = folder.string()};
  const auto write = [&](const ServerCertificate& made) {
    std::ofstream(folder / "tls.crt") << made.chain_pem;
    std::ofstream(folder / "tls.key") << made.key_pem;
  };
  const auto trusted = [&](int port, const ServerCertificate& made) {
    auto transport = kube::make_api_transport(
        {.server = "https://127.0.0.1:" + std::to_string(port), .ca_pem = made.authority_pem});
    const auto answer = (*transport)
                            ->call({.method = "POST",
                                    .path = "/validate",
                                    .content_type = "application/json",
                                    .body = review_of("/o")},
                                   {});
    return answer && answer->status == 200;
  };
  const auto issue = [&] {
    return *issue_certificate({"127.0.0.1"}, "others", clock.wall(), std::chrono::hours(1));
  };
  const ServerCertificate first = issue(), second = issue();
  const auto told = [](bool) {};
  const auto without = Webhook::start(options, client, clock, told);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().kind, ErrorKind::Environment);
  EXPECT_THAT(without.error().to_string(), HasSubstr("no certificate and key that fit together"));
  write(first);
  const auto webhook = Webhook::start(options, client, clock, told);
  ASSERT_TRUE(webhook) << webhook.error().to_string();
  EXPECT_TRUE(soon([&] { return (*webhook)->ready(); }));
  EXPECT_TRUE(trusted((*webhook)->port(), first));
  EXPECT_FALSE(trusted((*webhook)->port(), second));
  write(second);
  EXPECT_TRUE(soon([&] { return trusted((*webhook)->port(), second); }));
  EXPECT_EQ(server.requests("GET"), 0) << "the bundle is not ours to keep";
  std::filesystem::remove_all(folder);
}

TEST_F(WebhookTest, AnswersReviewsByACertificateOfTheBundle) {
  const auto webhook = start("one");
  ASSERT_TRUE(soon([&] { return webhook->ready() && authorities() == 1; }));
  const auto good = post(webhook->port(), review_of("/o"));
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->status, 200);
  EXPECT_EQ(good->headers.at("content-type"), "application/json");
  EXPECT_EQ(Json::parse(good->body)["response"]["allowed"], true) << good->body;
  const auto bad = post(webhook->port(), review_of("o"));
  ASSERT_TRUE(bad);
  EXPECT_THAT(bad->body, HasSubstr("spec.training.outputDir"));
  EXPECT_EQ(yes, 1);
  EXPECT_EQ(no, 1);
  EXPECT_EQ(post(webhook->port(), "x")->status, 400);
  EXPECT_EQ(post(webhook->port(), review_of("/o"), "/other")->status, 404);
  EXPECT_EQ(post(webhook->port(), review_of("/o"), "/validate?timeout=5s")->status, 200);
  EXPECT_EQ(yes, 2);
}

TEST_F(WebhookTest, AHostileBodyIsRefusedBeforeItIsReadAndDeepOnesAreNoTrouble) {
  const auto webhook = start("one");
  ASSERT_TRUE(soon([&] { return authorities() == 1; }));
  const auto huge = post(webhook->port(), std::string(kReviewBytesMax + 1, ' '));
  EXPECT_TRUE(!huge || huge->status == 413) << "or the connection ended while it was sent";
  EXPECT_EQ(post(webhook->port(), std::string(kReviewBytesMax, '['))->status, 400);
  EXPECT_EQ(post(webhook->port(), std::string(kReviewBytesMax, '1'))->status, 400);
  EXPECT_EQ(post(webhook->port(), review_of("/o"))->status, 200);
}

TEST_F(WebhookTest, PlainHttpGarbageAndSlowPeersGetNothing) {
  const auto webhook = start("one");
  ASSERT_TRUE(soon([&] { return authorities() == 1; }));
  const std::string plain = raw_http(webhook->port(), "POST /validate HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(plain.find("HTTP/1.1"), std::string::npos) << plain;
  EXPECT_EQ(raw_http(webhook->port(), std::string(100'000, 'x')).find("HTTP"), std::string::npos);
  std::vector<int> slow;  // more than may be open, none says a word
  for (int i = 0; i < 60; ++i) slow.push_back(raw_connect(webhook->port()));
  const auto answer = post(webhook->port(), review_of("/o"));
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_TRUE(soon([&] {  // and each is cut off in time
    std::erase_if(slow, [](int fd) {
      char byte;
      if (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN) return false;
      close(fd);
      return true;
    });
    return slow.empty();
  }));
}

/// Whether a TLS handshake of a client that `prepare` has set up succeeds.
bool shakes_hands(int port, const std::function<void(SSL_CTX*)>& prepare) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  prepare(context);
  SSL* ssl = SSL_new(context);
  const int fd = raw_connect(port);
  SSL_set_fd(ssl, fd);
  const bool stands = SSL_connect(ssl) == 1;
  SSL_free(ssl);
  SSL_CTX_free(context);
  close(fd);
  return stands;
}

TEST_F(WebhookTest, OldTlsIsRefused) {
  const auto webhook = start("one");
  const auto shake = [&](int version) {
    return shakes_hands(webhook->port(), [version](SSL_CTX* context) {
      SSL_CTX_set_security_level(context, 0);
      SSL_CTX_set_min_proto_version(context, version);
      SSL_CTX_set_max_proto_version(context, version);
    });
  };
  EXPECT_FALSE(shake(TLS1_VERSION));
  EXPECT_FALSE(shake(TLS1_1_VERSION));
  EXPECT_TRUE(shake(TLS1_2_VERSION));
  EXPECT_TRUE(shake(TLS1_3_VERSION));
}

TEST_F(WebhookTest, ReplicasShareTheBundleThroughConflicts) {
  std::atomic<int> calls = 0;
  server.set_fault([&](const kube::Request& request) -> kube::testing::Fault {
    if (request.method == "PATCH" && ++calls % 3 == 1) {
      return {kube::testing::Fault::Kind::Refuse, 409};
    }
    return {};
  });
  std::vector<std::unique_ptr<Webhook>> replicas;
  for (int i = 0; i < 5; ++i) replicas.push_back(start("pod-" + std::to_string(i)));
  ASSERT_TRUE(soon([&] { return authorities() == 5; })) << authorities();
  server.set_fault({});
  // At rest nobody writes, however often they look.
  looks(25);
  const auto patches = server.requests("PATCH");
  looks(25);
  EXPECT_EQ(server.requests("PATCH"), patches);
  for (const auto& replica : replicas) {
    EXPECT_EQ(post(replica->port(), review_of("/o"))->status, 200);
  }
  // One dies and its container starts again: one authority in the other's place.
  replicas[2].reset();
  replicas[2] = start("pod-2");
  EXPECT_TRUE(soon([&] { return post(replicas[2]->port(), review_of("/o")).has_value(); }));
  EXPECT_EQ(authorities(), 5u);
}

TEST_F(WebhookTest, AWipedBundleIsFilledAgain) {
  const auto webhook = start("one");
  ASSERT_TRUE(soon([&] { return authorities() == 1; }));
  server.edit(kConfigurations, "", "jobs",
              [](Json& object) { object["webhooks"][0]["clientConfig"].erase("caBundle"); });
  EXPECT_TRUE(soon([&] { return authorities() == 1; }));
  EXPECT_TRUE(post(webhook->port(), review_of("/o")));
}

/// A handshake that trusts `bundle` alone, at whatever time.
bool trusted(int port, const std::string& bundle) {
  return shakes_hands(port, [&](SSL_CTX* context) {
    BIO* bio = BIO_new_mem_buf(bundle.data(), static_cast<int>(bundle.size()));
    while (X509* root = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr)) {
      X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root);
      X509_free(root);
    }
    BIO_free(bio);
    X509_VERIFY_PARAM* wanted = SSL_CTX_get0_param(context);
    X509_VERIFY_PARAM_set_flags(wanted, X509_V_FLAG_NO_CHECK_TIME);
    X509_VERIFY_PARAM_set1_ip_asc(wanted, "127.0.0.1");
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  });
}

TEST_F(WebhookTest, CertificatesChangeWhileItServes) {
  const auto webhook = start("one");
  ASSERT_TRUE(soon([&] { return authorities() == 1; }));
  std::string before = bundle();
  for (int day = 0; day < 3; ++day) {
    clock.ahead += milliseconds(kRenewBefore).count() + 1000;
    ASSERT_TRUE(soon([&] { return authorities() == 2; }));
    EXPECT_TRUE(trusted(webhook->port(), before)) << "an API server that has not heard yet";
    EXPECT_TRUE(trusted(webhook->port(), bundle()));
    clock.ahead += milliseconds(kSpread).count() + 1000;
    ASSERT_TRUE(soon([&] { return authorities() == 1 && bundle() != before; }));
    EXPECT_TRUE(trusted(webhook->port(), bundle()));
    EXPECT_FALSE(trusted(webhook->port(), before));
    before = bundle();
  }
}

TEST_F(WebhookTest, WithoutItsConfigurationItIsReadyAndServes) {
  const auto webhook = start("one", "missing");
  EXPECT_TRUE(soon([&] { return webhook->ready(); })) << "jobs must run all the same";
  EXPECT_EQ(authorities(), 0u);
}

TEST_F(WebhookTest, ATakenPortIsAnError) {
  const auto webhook = start("one");
  const auto other = Webhook::start({.address = "127.0.0.1:" + std::to_string(webhook->port()),
                                     .configuration = "jobs",
                                     .names = {"127.0.0.1"},
                                     .identity = "two"},
                                    client, clock, [](bool) {});
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().kind, ErrorKind::Environment);
}

}  // namespace
}  // namespace dsj::op
