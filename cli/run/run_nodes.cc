#include "cli/run/run_nodes.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <utility>

#include "common/net_address.h"
#include "common/text.h"

namespace dsj::cli {
namespace {

constexpr std::chrono::milliseconds kLookAgain{1'000};
constexpr int kLooks = 60;

/// torchrun's options about machines, and the job's options that may come from the environment.
struct Option {
  const char* name;
  bool of_the_job;  ///< the option stays in the line
  const char* other = "";
};
constexpr Option kOptions[] = {{"nnodes", true},         {"nproc_per_node", true, "num_gpus"},
                               {"max_restarts", true},   {"node_rank", false},
                               {"master_addr", false},   {"master_port", false},
                               {"rdzv_endpoint", false}, {"rdzv_conf", false}};

struct Given {
  std::string value, from;  ///< "--node_rank", or "PET_NODE_RANK"
};

std::string plain(const std::string& word) {
  std::string name;
  if (!word.starts_with("--")) return name;
  for (const char c : word.substr(2, word.find('=') - 2))
    name += c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::string variable_of(const std::string& name) {
  std::string upper = "PET_";
  for (const char c : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return upper;
}

/// Returns the line's options, and removes those that do not concern the job.
Result<std::map<std::string, Given>> take_options(std::vector<std::string>& line) {
  std::map<std::string, Given> given;
  std::vector<std::string> rest;
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string name = plain(line[i]);
    const auto option = std::ranges::find_if(
        kOptions, [&](const Option& one) { return name == one.name || name == one.other; });
    if (option == std::end(kOptions) || name.empty()) {
      rest.push_back(line[i]);
      continue;
    }
    const size_t equals = line[i].find('=');
    const bool apart = equals == std::string::npos;
    const bool has_value = !apart || (i + 1 < line.size() && !line[i + 1].starts_with("--"));
    if (!has_value) {
      if (!option->of_the_job) return bad_input("a value is missing", line[i]);
      rest.push_back(line[i]);
      continue;
    }
    given[option->name] = {apart ? line[i + 1] : line[i].substr(equals + 1),
                           line[i].substr(0, equals)};
    if (option->of_the_job) {
      rest.push_back(line[i]);
      if (apart) rest.push_back(line[i + 1]);
    }
    i += apart;
  }
  line = std::move(rest);
  return given;
}

Result<int> number(const Given& given, int64_t least, int64_t most) {
  const auto value = text::parse_int(given.value);
  if (value && *value >= least && *value <= most) return static_cast<int>(*value);
  return bad_input("found \"" + given.value + "\", expected a whole number from " +
                       std::to_string(least) + " to " + std::to_string(most),
                   given.from);
}

Result<int> count_of(const Given& given) {
  const size_t colon = given.value.find(':');
  if (colon != std::string::npos && given.value.substr(0, colon) != given.value.substr(colon + 1))
    return bad_input("\"" + given.value + "\": the number of nodes of a run does not change",
                     given.from, "write one number; on a cluster a DeepSpeedJob has spec.elastic");
  return number({given.value.substr(0, colon), given.from}, 1, 65'536);
}

std::string trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(' ');
  if (from == std::string_view::npos) return "";
  return std::string(text.substr(from, text.find_last_not_of(' ') + 1 - from));
}

/// Parses torchrun's --rdzv_conf KEY=VALUE,... Its static rendezvous reads `timeout`, its
/// dynamic one `join_timeout`, which takes precedence if a line has both. Other keys concern a
/// store that is not used here.
Result<std::optional<int>> join_limit_of(const Given& conf) {
  std::map<std::string, int> found;
  std::string_view rest = conf.value;
  while (!rest.empty()) {
    const std::string_view entry = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t equals = entry.find('=');
    const std::string key = trimmed(entry.substr(0, equals));
    const std::string value =
        equals == std::string_view::npos ? "" : trimmed(entry.substr(equals + 1));
    if (key.empty() || value.empty())
      return bad_input("found \"" + std::string(entry) + "\", expected KEY=VALUE,KEY=VALUE",
                       conf.from);
    if (key != "timeout" && key != "join_timeout") continue;
    DSJ_TRY(found[key], number({value, conf.from + " " + key}, 1, 10'000'000));
  }
  for (const char* key : {"join_timeout", "timeout"})
    if (found.contains(key)) return found[key];
  return std::nullopt;
}

/// Adds torchrun's variables; the line takes precedence.
void look_into(std::map<std::string, Given>& given, const Variable& variable,
               std::vector<std::string>* line) {
  for (const Option& option : kOptions) {
    const std::string name = variable_of(option.name);
    const std::string value = variable(name.c_str());
    if (value.empty() || given.contains(option.name)) continue;
    given[option.name] = {value, name};
    if (option.of_the_job && line) line->push_back(std::string("--") + option.name + "=" + value);
  }
}

}  // namespace

Result<Nodes> take_nodes(std::vector<std::string>& line, const Variable& variable) {
  DSJ_TRY(auto given, take_options(line));
  look_into(given, variable, &line);
  Nodes nodes;
  if (const auto count = given.find("nnodes"); count != given.end()) {
    DSJ_TRY(nodes.count, count_of(count->second));
  }
  if (!nodes.several()) return nodes;
  if (const auto rank = given.find("node_rank"); rank != given.end()) {
    DSJ_TRY(nodes.rank, number(rank->second, 0, nodes.count - 1));
  }
  if (const auto endpoint = given.find("rdzv_endpoint");
      endpoint != given.end() && !endpoint->second.value.empty()) {
    const auto read = parse_host_port(endpoint->second.value);
    if (!read || read->host.empty())
      return bad_input("found \"" + endpoint->second.value + "\", expected HOST[:PORT]",
                       endpoint->second.from);
    nodes.master_addr = read->host;
    nodes.master_port = read->port.value_or(0);
  }
  if (const auto address = given.find("master_addr"); address != given.end())
    nodes.master_addr = address->second.value;
  if (const auto port = given.find("master_port"); port != given.end()) {
    DSJ_TRY(nodes.master_port, number(port->second, 0, 65'535));
  }
  if (const auto conf = given.find("rdzv_conf"); conf != given.end()) {
    DSJ_TRY(const auto limit, join_limit_of(conf->second));
    if (limit) nodes.join_limit = std::chrono::seconds(*limit);
  }
  return nodes;
}

Status one_node(const Variable& variable) {
  std::map<std::string, Given> given;
  look_into(given, variable, nullptr);
  const auto count = given.find("nnodes");
  if (count == given.end()) return {};
  DSJ_TRY(const int nodes, count_of(count->second));
  if (nodes == 1) return {};
  return bad_input("found " + std::to_string(nodes) + " nodes: a manifest runs on one machine",
                   count->second.from,
                   "write the job as a torchrun line, or apply the manifest to a cluster");
}

std::vector<std::string> SystemNames::addresses(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::vector<std::string> all;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return all;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
        0)
      all.emplace_back(text);
  }
  freeaddrinfo(found);
  return all;
}

bool SystemNames::is_own(const std::string& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &wanted, &found) != 0) return false;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool own = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return own;
}

void SystemNames::wait(std::chrono::milliseconds time) {
  const timespec pause{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

Result<std::string> own_address(const std::string& host, Names& names) {
  std::vector<std::string> found;
  for (int look = 0; look < kLooks && found.empty(); ++look) {
    if (look > 0) names.wait(kLookAgain);
    found = names.addresses(host);
    if (found.empty() && is_ip_address(host)) break;
  }
  if (found.empty())
    return bad_input("the name is not known", "--master_addr " + host,
                     "name the machine of node 0 as all nodes know it");
  const auto own = std::ranges::find_if(found, [&](const auto& one) { return names.is_own(one); });
  if (own != found.end()) return *own;
  return bad_input("leads to " + found.front() + ", which is not an address of this machine",
                   "--master_addr " + host,
                   "node 0 runs where it leads; the other nodes have --node_rank 1, 2 and so on");
}

}  // namespace dsj::cli
