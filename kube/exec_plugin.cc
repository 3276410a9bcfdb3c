#include "kube/exec_plugin.h"

#include <cctype>
#include <ctime>
#include <nlohmann/json.hpp>

namespace dsj::kube {
namespace {

using Json = nlohmann::json;

/// Empty if it is missing; nullopt if it is not a string.
std::optional<std::string> text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::string();
  if (!found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

}  // namespace

std::optional<std::chrono::system_clock::time_point> rfc3339_time(const std::string& text) {
  std::tm parts{};
  const char* at = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (at == nullptr) return std::nullopt;
  auto time = std::chrono::system_clock::from_time_t(timegm(&parts));
  const auto digit = [&] { return std::isdigit(static_cast<unsigned char>(*at)) != 0; };
  if (*at == '.') {
    ++at;
    if (!digit()) return std::nullopt;
    auto unit = std::chrono::nanoseconds(100'000'000);
    for (; digit(); ++at, unit /= 10) {
      time += std::chrono::duration_cast<std::chrono::system_clock::duration>(unit * (*at - '0'));
    }
  }
  if ((*at == 'Z' || *at == 'z') && at[1] == '\0') return time;
  std::tm offset{};
  if (*at != '+' && *at != '-') return std::nullopt;
  const char* end = strptime(at + 1, "%H:%M", &offset);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const auto ahead = std::chrono::hours(offset.tm_hour) + std::chrono::minutes(offset.tm_min);
  return *at == '+' ? time - ahead : time + ahead;
}

std::string exec_info(const ExecPlugin& plugin, bool interactive) {
  Json info = {{"apiVersion", plugin.api_version},
               {"kind", "ExecCredential"},
               {"spec", {{"interactive", interactive}}}};
  if (!plugin.cluster_info.empty()) info["spec"]["cluster"] = Json::parse(plugin.cluster_info);
  return info.dump();
}

Result<ExecCredential> read_exec_credential(const ExecPlugin& plugin, const std::string& output) {
  const std::string who = "the credential plugin \"" + plugin.command + "\"";
  const auto wrong = [&](const std::string& what) {
    return fail(
        ErrorKind::Environment, who + what, plugin.where,
        "run it by hand: it prints an ExecCredential, and \"kubectl get nodes\" works with it");
  };
  const Json answer = Json::parse(output, nullptr, false);
  if (!answer.is_object()) return wrong(" printed something that is not a JSON object");
  if (text_of(answer, "kind").value_or("") != "ExecCredential") {
    return wrong(" printed an object that is not an ExecCredential");
  }
  if (const auto version = text_of(answer, "apiVersion"); version != plugin.api_version) {
    return wrong(" answered in version \"" + version.value_or("?") +
                 "\", the kubeconfig asks for \"" + plugin.api_version + "\"");
  }
  const auto status = answer.find("status");
  if (status == answer.end() || !status->is_object()) return wrong(" answered without a status");
  const auto token = text_of(*status, "token");
  const auto certificate = text_of(*status, "clientCertificateData");
  const auto key = text_of(*status, "clientKeyData");
  const auto expires = text_of(*status, "expirationTimestamp");
  if (!token || !certificate || !key || !expires) {
    return wrong(" answered with a field of its status that is not a string");
  }
  if (certificate->empty() != key->empty()) {
    return wrong(" answered with only a certificate or only a key");
  }
  if (token->empty() && certificate->empty()) {
    return wrong(" answered with neither a token nor a certificate");
  }
  if (token->find_first_of("\r\n") != std::string::npos) {
    return wrong(" answered with a token of more than one line");
  }
  ExecCredential credential{
      .token = *token, .certificate_pem = *certificate, .key_pem = *key, .expires = {}};
  if (!expires->empty()) {
    credential.expires = rfc3339_time(*expires);
    if (!credential.expires) {
      return wrong(" answered with expirationTimestamp \"" + *expires +
                   "\", expected a time like 2026-01-31T12:00:00Z");
    }
  }
  return credential;
}

}  // namespace dsj::kube
