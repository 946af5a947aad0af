// A subreaper has to reap strangers as well as its own, so one loop over waitpid() serves both, whichever descriptor
// (a worker's pidfd, or the signalfd) told that it is time to look.
#include "tutti/launch/agent/workers.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "tutti/launch/agent/signals.h"
#include "tutti/launch/environment.h"
#include "tutti/trace/progress/page.h"

namespace tutti {
namespace {

// What a child had of memory at most, in bytes; 0 where that may be what it had as our copy, before its own program.
std::uint64_t peak_of(const rusage& child) {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  return child.ru_maxrss > own.ru_maxrss ? std::uint64_t(child.ru_maxrss) * 1024 : 0;
}

}  // namespace

Status Workers::start(const AgentSpec& spec, const Round& round, const std::string& flight_folder,
                      const Environment& environment, Consoles& consoles) {
  const int count = round.layout.here();
  want_descriptors(std::size_t(count) * 6 + 256);  // two pipes, two files, a pidfd, a page
  workers_.reserve(std::size_t(count));
  for (int local_rank = 0; local_rank < count; ++local_rank) {
    if (end_is_asked_for())  // thousands of ranks take a while
      return Error{.code = Code::kAborted,
                   .detail = "a signal came when " + std::to_string(local_rank) + " of " + std::to_string(count) +
                             " had been started"};
    TUTTI_TRY(start_one(spec, round, local_rank, flight_folder, environment, consoles));
  }
  return {};
}

Status Workers::start_one(const AgentSpec& spec, const Round& round, int local_rank, const std::string& flight_folder,
                          Environment environment, Consoles& consoles) {
  const Layout& layout = round.layout;
  const int rank = layout.first_rank() + local_rank;
  std::string folder, error_file;
  if (!spec.output.log_dir.empty()) {
    folder = TUTTI_TRY(make_rank_folder(attempt_folder(spec.output.log_dir, spec.job, round.number), rank));
    error_file = folder + "/error.json";
  } else if (!spec.error_files.empty()) {
    error_file = spec.error_files + "rank_" + std::to_string(rank) + ".json";
  }
  if (!error_file.empty()) (void)unlink(error_file.c_str());  // what an earlier attempt said, if one did
  auto made_page = ProgressPage::create();
  if (!made_page.ok() && local_rank == 0)
    consoles.say("the ranks cannot be watched closely: " + to_string(made_page.error()));
  Fd page = made_page.ok() ? *std::move(made_page) : Fd();
  set_place(environment, Place{.rank = rank,
                               .world_size = layout.world_size(),
                               .local_rank = local_rank,
                               .local_world_size = layout.here(),
                               .node = layout.node,
                               .nodes = layout.nodes(),
                               .master_address = round.master_address,
                               .master_port = round.master_port,
                               .job = spec.job,
                               .generation = round.number,
                               .restarts = round.restarts_used,
                               .max_restarts = spec.max_restarts,
                               .store = (round.unix_store.empty() ? "" : round.unix_store + ",") + round.store,
                               .flight_folder = flight_folder,
                               .error_file = error_file,
                               .role = spec.role,
                               .secret_fd = spec.secret_fd,
                               .kept_memory_fd = spec.kept_memory_fd,
                               .progress_fd = page.get()});
  const Share& share = spec.shares[std::size_t(local_rank)];
  for (const auto& [name, value] : share.variables) environment[name] = value;
  OutputOptions shown = spec.output;
  shown.host = spec.host;
  shown.attempt = round.number;
  shown.prefix_template = substituted(shown.prefix_template, {{"role_name", spec.role},
                                                              {"rank", std::to_string(rank)},
                                                              {"local_rank", std::to_string(local_rank)},
                                                              {"hostname", spec.host}});
  WorkerOutput output = TUTTI_TRY(WorkerOutput::create(rank, shown, shown_streams(shown, rank, local_rank), folder,
                                                       consoles.output(), consoles.errors()));
  ProcessSpec process{.path = spec.program,
                      .arguments = arguments_of_rank(spec.arguments, local_rank, spec.pass_local_rank),
                      .environment = to_strings(environment)};
  process.cpus = share.cpus;
  if (rank == spec.input_rank) process.input = STDIN_FILENO;
  if (page) process.inherited.push_back(page.get());
  if (spec.kept_memory_fd >= 0) process.inherited.push_back(spec.kept_memory_fd);
  if (spec.secret_fd >= 0) process.inherited.push_back(spec.secret_fd);
  workers_.emplace_back(rank, TUTTI_TRY(start_process(process)), std::move(output), error_file, std::move(page));
  return {};
}

int Workers::alive() const {
  return int(std::count_if(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.alive(); }));
}

std::vector<WorkerEnd> Workers::ends() const {
  std::vector<WorkerEnd> ends;
  for (const Worker& worker : workers_) ends.push_back(worker.end());
  return ends;
}

void Workers::listen(PollSet& events) {
  for (Worker& worker : workers_) worker.listen(events);
}

std::vector<Worker*> Workers::reap() {
  std::vector<Worker*> ended;
  int status = 0;
  pid_t pid;
  rusage used{};
  while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const Worker& w) { return w.alive() && w.pid() == pid; });
    if (worker == workers_.end()) continue;
    worker->ended(exit_of(status), peak_of(used));
    ended.push_back(&*worker);
  }
  // Of several that ended between two looks, a crash is more likely the cause, and an exit code the echo.
  std::stable_sort(ended.begin(), ended.end(), [](const Worker* a, const Worker* b) {
    return (a->end().exit.signal != 0) > (b->end().exit.signal != 0);
  });
  return ended;
}

void Workers::signal_alone(int signal) {
  for (const Worker& worker : workers_) worker.signal_alone(signal);
}

void Workers::request_stop(int signal) {
  for (const Worker& worker : workers_) (void)worker.progress().request_stop(signal);  // the signal says it, too
}

void Workers::stop_groups(int signal) {
  for (Worker& worker : workers_) worker.stop_group(signal);
}

void Workers::continue_groups() {
  for (const Worker& worker : workers_) worker.signal_group(SIGCONT);
}

}  // namespace tutti
