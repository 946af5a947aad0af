#include "tutti/launch/ssh/protocol.h"

#include <nlohmann/json.hpp>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = "TUTTI-NODE ";
constexpr std::string_view kEnd = "TUTTI-NODE-END ";
constexpr std::string_view kSignal = "signal ";
constexpr int kLastSignal = 64;
constexpr int kLastCode = 255;

// One line of JSON, whatever bytes the strings contain.
std::string line_of(const Json& json) { return json.dump(-1, ' ', true, Json::error_handler_t::replace); }

std::optional<int> port_of(const Json& json) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > 65535) return std::nullopt;
  return json.get<int>();
}

Json json_of(const std::vector<transport::InterfaceAddress>& addresses) {
  Json list = Json::array();
  for (const auto& [interface, host, prefix, is_link_local] : addresses)
    list.push_back({{"interface", interface}, {"host", host}, {"prefix", prefix}, {"link_local", is_link_local}});
  return list;
}

// Another version, which greets with other fields, may have none.
std::vector<transport::InterfaceAddress> addresses_of(const Json& greeting) {
  std::vector<transport::InterfaceAddress> addresses;
  for (const Json& json : greeting.value("addresses", Json::array()))
    addresses.push_back({.interface = json.at("interface"),
                         .host = json.at("host"),
                         .prefix = json.at("prefix"),
                         .is_link_local = json.at("link_local")});
  return addresses;
}

}  // namespace

std::string encode(const Greeting& greeting) {
  return std::string(kMark) + line_of({{"version", greeting.version},
                                       {"host", greeting.host},
                                       {"address", greeting.address},
                                       {"from", greeting.from},
                                       {"master_port", greeting.master_port},
                                       {"store_port", greeting.store_port},
                                       {"addresses", json_of(greeting.addresses)}});
}

std::optional<Greeting> parse_greeting(std::string_view line) {
  if (!line.starts_with(kMark)) return std::nullopt;
  const auto json = Json::parse(line.substr(kMark.size()), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    const auto master_port = port_of(json.at("master_port")), store_port = port_of(json.at("store_port"));
    if (!master_port || !store_port) return std::nullopt;
    return Greeting{.version = json.at("version"),
                    .host = json.at("host"),
                    .address = json.at("address"),
                    .from = json.at("from"),
                    .master_port = *master_port,
                    .store_port = *store_port,
                    .addresses = addresses_of(json)};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode(const NodeExit& exit) {
  return std::string(kEnd) + line_of({{"code", exit.code}, {"met", exit.joined}});
}

std::optional<NodeExit> parse_node_exit(std::string_view line) {
  if (!line.starts_with(kEnd)) return std::nullopt;
  const auto json = Json::parse(line.substr(kEnd.size()), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    const NodeExit exit{.code = json.at("code"), .joined = json.at("met")};
    return exit.code >= 0 && exit.code <= kLastCode ? std::optional(exit) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode(const Instructions& instructions) {
  return line_of(
      {{"arguments", instructions.arguments}, {"folder", instructions.folder}, {"variables", instructions.variables}});
}

std::optional<Instructions> parse_instructions(std::string_view line) {
  const auto json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return Instructions{
        .arguments = json.at("arguments"), .folder = json.at("folder"), .variables = json.at("variables")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode_signal(int signal) { return std::string(kSignal) + std::to_string(signal); }

std::optional<int> parse_signal(std::string_view line) {
  if (!line.starts_with(kSignal)) return std::nullopt;
  const auto number = parse_int(line.substr(kSignal.size()));
  return number && *number > 0 && *number <= kLastSignal ? std::optional(int(*number)) : std::nullopt;
}

}  // namespace tutti::launch
