#include "tutti/launch/reports/shared_report.h"

#include <utility>

namespace tutti {
namespace {

constexpr Duration kStoreLimit = std::chrono::seconds(2);
constexpr std::size_t kMost = 1 << 20;

Result<std::unique_ptr<TcpStore>> reach(const std::string& store, const Credentials& credentials) {
  auto servers = TUTTI_TRY(parse_servers(store));
  auto reached = TUTTI_TRY(TcpStore::connect(std::move(servers), credentials, -1, Deadline::after(kStoreLimit)));
  reached->set_call_timeout(kStoreLimit);
  return reached;
}

std::string key_of(int round) { return "agents/report/" + std::to_string(round); }

}  // namespace

Status share_report(const std::string& store, const Credentials& credentials, int round, const std::string& text) {
  return TUTTI_TRY(reach(store, credentials))->set(key_of(round), text.substr(0, kMost));
}

Result<std::string> read_report(const std::string& store, const Credentials& credentials, int round,
                                Duration patience) {
  return TUTTI_TRY(reach(store, credentials))->get(key_of(round), Deadline::after(patience));
}

}  // namespace tutti
