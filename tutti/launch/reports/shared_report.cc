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

std::string text_key(int round) { return "agents/report/" + std::to_string(round); }
std::string json_key(int round) { return "agents/report_json/" + std::to_string(round); }

}  // namespace

Status share_report(const std::string& store, const Credentials& credentials, int round, const SharedReport& report) {
  const auto reached = TUTTI_TRY(reach(store, credentials));
  TUTTI_TRY(reached->set(json_key(round), report.json.size() <= kMost ? report.json : std::string()));
  return reached->set(text_key(round), report.text.substr(0, kMost));
}

Result<SharedReport> read_report(const std::string& store, const Credentials& credentials, int round,
                                 Duration patience) {
  const auto reached = TUTTI_TRY(reach(store, credentials));
  SharedReport report{.text = TUTTI_TRY(reached->get(text_key(round), Deadline::after(patience))), .json = {}};
  if (auto json = reached->get(json_key(round), Deadline::after(kStoreLimit)); json.ok())
    report.json = *std::move(json);
  return report;
}

}  // namespace tutti
