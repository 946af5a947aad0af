// The order matters: what can be wrong on the command line is checked before anything is started, the keeper is forked before there is
// a thread, and only then is the store served.
#include "tutti/launch/job.h"

#include <sys/random.h>

#include <cstdio>
#include <ctime>

#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/launch/agent.h"
#include "tutti/launch/keeper.h"
#include "tutti/launch/nodes.h"
#include "tutti/launch/program.h"
#include "tutti/launch/tuning.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

// "20261120-210405-3fa9c1": sorts by time in a log folder, and no two are alike.
std::string new_job_id() {
  unsigned int noise = 0;
  if (getrandom(&noise, sizeof noise, 0) != sizeof noise) noise = unsigned(now().time_since_epoch().count());
  const std::time_t time = std::time(nullptr);
  std::tm local{};
  localtime_r(&time, &local);
  char text[64];
  const std::size_t length = std::strftime(text, sizeof text, "%Y%m%d-%H%M%S-", &local);
  std::snprintf(text + length, sizeof text - length, "%06x", noise & 0xffffff);
  return text;
}

// A port that the program can bind: the one given, if it is free, or any. It is closed again at once.
Result<int> free_port(const std::string& host, std::optional<int> wanted) {
  const auto listener = listen(Address{.host = host, .port = std::uint16_t(wanted.value_or(0))});
  if (listener.ok()) return int(listener->address.port);
  Error error = listener.error();
  if (wanted && error.code == Code::kAddressInUse) error.hint = "choose another --master-port, or leave it out on one node";
  return error;
}

}  // namespace

Result<int> run_job(const JobOptions& options) {
  AgentSpec spec;
  spec.program = TUTTI_TRY(find_program(options.program, env("PATH").value_or("")));
  spec.arguments = options.arguments;
  spec.arguments.insert(spec.arguments.begin(), options.program);
  const RankCounts counts = TUTTI_TRY(parse_rank_counts(options.ranks, options.nodes, options.node, usable_cores()));
  spec.layout = Layout{.counts = counts.all, .node = options.node};
  spec.job = options.job.empty() ? new_job_id() : options.job;
  spec.master_address = options.master_address.empty() ? "127.0.0.1" : options.master_address;
  spec.master_port = TUTTI_TRY(free_port(spec.master_address, options.master_port));
  spec.tune = options.tune;
  spec.announce = options.announce;
  spec.grace = options.grace;
  spec.signal_grace = options.signal_grace;
  spec.time_limit = options.time_limit;
  spec.output = options.output;
  return run_with_keeper([&](const Fd& keeper_gone) { return run_agent(spec, nullptr, keeper_gone); });
}

}  // namespace tutti
