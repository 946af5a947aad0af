#include "tutti/launch/ssh/hosts.h"

#include <algorithm>
#include <optional>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/layout.h"

namespace tutti::launch {
namespace {

struct Entry {
  std::string host;
  std::optional<int> ranks;
};

Error bad(const std::string& where, const std::string& what, const std::string& part) {
  return Error{.code = Code::kUsage,
               .detail = where + ": '" + part + "' " + what,
               .hint = "for example a:8,b:2, or in a hostfile a line 'a slots=8' for each host"};
}

// Not a host: what ssh would take for an option, or a shell for several words.
bool is_host(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:%";
  return !text.empty() && text.front() != '-' && text.find_first_not_of(kLetters) == std::string_view::npos;
}

Result<Entry> make_entry(std::string_view host, std::optional<std::string_view> count, const std::string& part,
                         const std::string& where) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (!is_host(host)) return bad(where, "names no host", part);
  Entry entry{.host = std::string(host), .ranks = {}};
  if (!count) return entry;
  const auto ranks = parse_int(*count);
  if (!ranks || *ranks < 1 || *ranks > kMostRanksPerNode)
    return bad(where, "needs a count from 1 to " + std::to_string(kMostRanksPerNode), part);
  entry.ranks = int(*ranks);
  return entry;
}

// HOST or HOST:N. More than one colon is an IPv6 address, which has a count only after brackets.
Result<Entry> parse_entry(const std::string& part, const std::string& where) {
  const std::size_t colon = part.rfind(':');
  const bool bracketed = part.starts_with('[');
  const bool counted =
      colon != std::string::npos && (bracketed ? colon > 0 && part[colon - 1] == ']' : part.find(':') == colon);
  if (!counted) return make_entry(part, std::nullopt, part, where);
  return make_entry(std::string_view(part).substr(0, colon), std::string_view(part).substr(colon + 1), part, where);
}

Result<Entry> parse_line(const std::string& line, const std::string& where) {
  std::vector<std::string> words;
  std::string spaced = line;
  std::replace(spaced.begin(), spaced.end(), '\t', ' ');
  for (const std::string& word : split(spaced, ' '))
    if (!word.empty()) words.push_back(word);
  if (words.size() == 1) return parse_entry(words[0], where);
  if (words.size() > 2) return bad(where, "has more than a host and a count", line);
  std::string_view count = words[1];
  if (count.starts_with("slots=")) count.remove_prefix(6);
  return make_entry(words[0], count, line, where);
}

Result<HostList> list_of(const std::vector<Entry>& entries, const std::string& where) {
  if (entries.empty()) return Error{.code = Code::kUsage, .detail = where + " names no host"};
  HostList list;
  for (const Entry& entry : entries) {
    list.hosts.push_back(entry.host);
    if (entry.ranks) list.ranks.push_back(*entry.ranks);
  }
  if (list.ranks.empty() || list.ranks.size() == list.hosts.size()) return list;
  const auto uncounted = std::find_if(entries.begin(), entries.end(), [](const Entry& entry) { return !entry.ranks; });
  return Error{.code = Code::kUsage,
               .detail = where + " gives a count for some hosts, but none for " + uncounted->host,
               .hint = "give one for each, or for none and -n for all"};
}

}  // namespace

Result<HostList> parse_hosts(std::string_view text) {
  std::vector<Entry> entries;
  for (const std::string& part : split(text, ',')) {
    Entry entry = TUTTI_TRY(parse_entry(std::string(trim(part)), "--hosts"));
    for (const Entry& other : entries) {
      if (other.host != entry.host) continue;
      return Error{.code = Code::kUsage,
                   .detail = "--hosts names " + entry.host + " twice",
                   .hint = "a host is one node: give it the sum of its ranks"};
    }
    entries.push_back(std::move(entry));
  }
  return list_of(entries, "--hosts");
}

Result<HostList> parse_hostfile(std::string_view text, const std::string& path) {
  std::vector<Entry> entries;
  std::vector<int> lines;  // how many lines name each entry
  int number = 0;
  bool counted = false;
  for (const std::string& whole : split(text, '\n')) {
    ++number;
    const std::string line(trim(std::string_view(whole).substr(0, whole.find('#'))));
    if (line.empty()) continue;
    Entry entry = TUTTI_TRY(parse_line(line, path + ", line " + std::to_string(number)));
    counted = counted || entry.ranks;
    const auto known =
        std::find_if(entries.begin(), entries.end(), [&](const Entry& other) { return other.host == entry.host; });
    if (known == entries.end()) {
      entries.push_back(std::move(entry));
      lines.push_back(1);
      continue;
    }
    ++lines[std::size_t(known - entries.begin())];
    if (known->ranks && entry.ranks) *known->ranks += *entry.ranks;
    if (known->ranks.value_or(0) > kMostRanksPerNode)
      return Error{.code = Code::kUsage,
                   .detail = path + " gives " + known->host + " " + std::to_string(*known->ranks) + " ranks in all",
                   .hint = "a host has at most " + std::to_string(kMostRanksPerNode)};
  }
  const bool repeated = std::any_of(lines.begin(), lines.end(), [](int count) { return count > 1; });
  for (std::size_t i = 0; repeated && !counted && i < entries.size(); ++i)
    entries[i].ranks = std::min(lines[i], kMostRanksPerNode);
  return list_of(entries, path);
}

bool is_this_host(const std::string& host) { return host == "localhost" || host == host_name(); }

}  // namespace tutti::launch
