// How many calls a second the store of `tutti run` carries for its own ranks, by the way that they take to it. Each
// rank has one call under way at a time; calls are a mix of what a rendezvous does: set, get, add, check.
//   tutti run -n 64 store_of_job [--seconds 3] [--tcp]
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/join.h"
#include "tutti/store/tcp_store.h"

namespace {

using namespace tutti;

Deadline soon() { return Deadline::after_seconds(60); }

std::uint64_t call_for(Duration time, Store& store, int rank) {
  const std::string key = "key/" + std::to_string(rank), value(32, 'v');
  std::uint64_t calls = 0;
  for (const auto begin = now(); now() - begin < time; calls += 4) {
    store.set(key, value).or_throw();
    (void)store.get(key, soon()).or_throw();
    (void)store.add("counter", 1).or_throw();
    (void)store.check({key}).or_throw();
  }
  return calls;
}

// As for a rank that does not reach the Unix socket.
void forget_unix_socket() {
  const std::string both = env("TUTTI_STORE").value_or("");
  ::setenv("TUTTI_STORE", both.substr(both.rfind(',') + 1).c_str(), 1);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the store of tutti run with the ranks of a job.", "store_of_job");
  cli::set_help(app, "\nExamples:\n  tutti run -n 64 store_of_job");
  double seconds = 3;
  bool tcp = false;
  app.add_option("--seconds", seconds, "seconds to measure")->check(CLI::PositiveNumber);
  app.add_flag("--tcp", tcp, "use TCP, though the store is on this host");
  if (const auto code = cli::parse(app, {argv + 1, argv + argc})) return *code;
  if (tcp) forget_unix_socket();
  const rendezvous::Membership me = rendezvous::join().or_throw();
  if (!me.store) return std::fprintf(stderr, "a world of one has no store: tutti run -n 64 store_of_job\n"), 2;
  me.store->barrier("begin", me.rank, me.world_size, soon()).or_throw();
  const std::uint64_t mine = call_for(from_seconds(seconds), *me.store, me.rank);
  const auto counts = me.store->gather_all("end", me.rank, me.world_size, std::to_string(mine), soon()).or_throw();
  if (me.rank != 0) return 0;
  double calls = 0;
  for (const std::string& count : counts) calls += double(parse_int(count).value_or(0));
  std::printf("%.0f calls/s of %d ranks at %s\n", calls / seconds, me.world_size, to_string(me.stores).c_str());
  return 0;
}
