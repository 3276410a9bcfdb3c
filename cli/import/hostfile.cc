#include "cli/import/hostfile.h"

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "common/text.h"

namespace dsj::jobimport {
namespace {

constexpr int64_t kMaxSlots = 65'536;

/// A plain non-negative number.
std::optional<int> number(const std::string& word) {
  if (word.empty() || word.size() > 6 || word.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return static_cast<int>(*text::parse_int(word));
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::string part;
  std::istringstream stream(text);
  while (std::getline(stream, part, separator)) parts.push_back(part);
  return parts;
}

/// Parses "worker-0@worker-1:0,2": hosts with their slots; without slots all are meant.
Result<std::map<std::string, std::vector<int>>> parse_filter(const std::vector<Host>& hosts,
                                                             const std::string& text,
                                                             const std::string& where) {
  std::map<std::string, std::vector<int>> named;
  for (const std::string& node : split(text, '@')) {
    const size_t colon = node.find(':');
    const std::string name = node.substr(0, colon);
    const auto host =
        std::find_if(hosts.begin(), hosts.end(), [&](const Host& one) { return one.name == name; });
    if (host == hosts.end()) return bad_input("there is no host \"" + name + "\"", where);
    std::vector<int> slots = host->slots;
    if (colon != std::string::npos) {
      slots.clear();
      for (const std::string& word : split(node.substr(colon + 1), ',')) {
        const auto slot = number(word);
        if (!slot || std::find(host->slots.begin(), host->slots.end(), *slot) == host->slots.end())
          return bad_input("host \"" + name + "\" has no slot \"" + word + "\"", where);
        slots.push_back(*slot);
      }
      if (slots.empty()) return bad_input("no slot is named after \"" + name + ":\"", where);
    }
    if (!named.emplace(name, slots).second)
      return bad_input("host \"" + name + "\" is given twice", where);
  }
  return named;
}

}  // namespace

Result<std::vector<Host>> parse_hostfile(const std::string& text, const std::string& source) {
  std::vector<Host> hosts;
  std::map<std::string, int> lines;
  std::istringstream stream(text);
  std::string line;
  int64_t total = 0;
  for (int at = 1; std::getline(stream, line); ++at) {
    const std::string where = source + ":" + std::to_string(at);
    std::istringstream words(line.substr(0, line.find('#')));
    std::string name, slots, more;
    if (!(words >> name)) continue;
    words >> slots >> more;
    const auto count = slots.starts_with("slots=") ? number(slots.substr(6)) : std::nullopt;
    if (!count || *count < 1)
      return bad_input("expected \"HOST slots=N\", found \"" + line.substr(0, 60) + "\"", where);
    if (!more.empty()) return bad_input("not read: \"" + more + "\"", where, "HOST slots=N");
    if (const auto [first, is_new] = lines.emplace(name, at); !is_new)
      return bad_input(
          "host \"" + name + "\" is given twice, first at line " + std::to_string(first->second),
          where, "keep one of the two");
    total += *count;
    if (total > kMaxSlots)
      return bad_input("more than " + std::to_string(kMaxSlots) + " slots", where);
    Host host{.name = name};
    for (int slot = 0; slot < *count; ++slot) host.slots.push_back(slot);
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return bad_input("no host is named", source, "HOST slots=N on each line");
  return hosts;
}

Result<std::vector<Host>> filter(const std::vector<Host>& hosts, const std::string& include,
                                 const std::string& exclude) {
  if (!include.empty() && !exclude.empty())
    return bad_input("--include and --exclude are both given", "", "keep one");
  if (include.empty() && exclude.empty()) return hosts;
  const bool including = !include.empty();
  const std::string where = including ? "--include" : "--exclude";
  DSJ_TRY(const auto named, parse_filter(hosts, including ? include : exclude, where));
  std::vector<Host> left;
  for (const Host& host : hosts) {
    const auto found = named.find(host.name);
    if (found == named.end()) {
      if (!including) left.push_back(host);
      continue;
    }
    Host rest{.name = host.name};
    for (const int slot : host.slots) {
      const bool listed =
          std::find(found->second.begin(), found->second.end(), slot) != found->second.end();
      if (listed == including) rest.slots.push_back(slot);
    }
    if (!rest.slots.empty()) left.push_back(std::move(rest));
  }
  if (left.empty()) return bad_input("no slot is left", where);
  return left;
}

Result<Nodes> workers_of(const std::vector<Host>& hosts, const std::string& where) {
  std::string shown;
  bool even = true;
  for (const Host& host : hosts) {
    even = even && host.slots.size() == hosts[0].slots.size();
    if (shown.size() < 200)
      shown += (shown.empty() ? "" : ", ") + host.name + ": " + std::to_string(host.slots.size());
  }
  if (!even)
    return bad_input("hosts with different numbers of slots: " + shown, where,
                     "every worker of a job has the same number of ranks");
  return Nodes{static_cast<int>(hosts.size()), static_cast<int>(hosts[0].slots.size())};
}

}  // namespace dsj::jobimport
