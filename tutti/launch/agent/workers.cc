// A subreaper must reap orphans as well as its own workers, so one loop over wait4() serves both, whichever descriptor
// (a worker's pidfd or the signalfd) became readable.
#include "tutti/launch/agent/workers.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/monitor/process_info.h"
#include "tutti/launch/output/run_folder.h"
#include "tutti/trace/progress/page.h"
#include "tutti/transport/address.h"

namespace tutti::launch {
namespace {

// Bounded, so that a worker that writes without end does not starve the others, and because the buffer is on the stack.
constexpr std::size_t kReadBytes = 16 * 1024;
constexpr int kReadsAtTheEnd = 128;  // more than a pipe holds

// The peak memory of a child in bytes; 0 if that may be what it had as a copy of this process, before execve().
std::uint64_t peak_of(const rusage& child) {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  return child.ru_maxrss > own.ru_maxrss ? std::uint64_t(child.ru_maxrss) * 1024 : 0;
}

constexpr auto kTellLimit = std::chrono::milliseconds(500);  // for ranks to print the cause that they read in the store
constexpr auto kStopKillLimit = std::chrono::seconds(5);     // what SIGKILL may take

// --iface if it was given, else the way to node 0. Ranks of one host need none.
std::string interface_of(const Round& round, const Environment& environment) {
  if (round.layout.nodes() == 1) return {};
  const auto wanted = environment.find("TUTTI_IFACE");
  if (wanted == environment.end()) return transport::interface_towards(round.master_address);
  const auto host = transport::address_at(wanted->second);
  return host.ok() ? transport::interface_towards(*host) : std::string();
}

}  // namespace

Worker::Worker(int rank, ChildProcess process, WorkerOutput output, std::string error_file, Fd page)
    : end_{.rank = rank, .pid = process.pid},
      process_(std::move(process)),
      output_(std::move(output)),
      error_file_(std::move(error_file)),
      page_(std::move(page)) {}

void Worker::ended(Exit exit, std::uint64_t most_resident) {
  alive_ = false;
  end_.exit = exit;
  end_.seconds = seconds_since(started());
  end_.most_resident = most_resident;
  drain();
}

// SIGINT is how Python ends after a KeyboardInterrupt, and SIGABRT may follow an exception in destructors of C++
// libraries. A traceback before another signal is no reason for it.
std::string Worker::traceback() const {
  const Exit& exit = end_.exit;
  const bool by_itself = exit.signal == 0 || exit.signal == SIGINT || exit.signal == SIGABRT;
  return alive_ || exit.ok() || !by_itself ? std::string() : sanitize(output_.traceback().message());
}

void Worker::send_when_handled(int signal) {
  if (std::find(pending_.begin(), pending_.end(), signal) == pending_.end()) pending_.push_back(signal);
  send_pending();
}

void Worker::send_pending() {
  if (!has_pending()) return;
  const ProcessInfo info = process_info(end_.pid);  // not reaped yet, so the number is still this worker's
  std::erase_if(pending_, [&](int signal) { return info.handles(signal) && kill(end_.pid, signal) == 0; });
}

void Worker::signal_group(int signal) const {
  if (alive_) kill(-end_.pid, signal);
}

void Worker::stop_group(int signal) {
  if (alive_) end_.sent = signal;
  signal_group(signal);
}

void Worker::mark_stopped() {
  end_.stopped = true;
  end_.suspended = is_suspended(end_.pid);
}

void Worker::listen(PollSet& events) {
  for (const auto stream : {WorkerOutput::kOutput, WorkerOutput::kErrors}) {
    if (pipe(stream) && !output_.congested(stream))
      events.watch(pipe(stream).get(), POLLIN, [this, stream] { read(stream); });
  }
}

void Worker::read(WorkerOutput::Stream stream) {
  Fd& fd = pipe(stream);
  if (!fd) return;
  std::array<char, kReadBytes> bytes;  // NOLINT: filled by read()
  const ssize_t count = ::read(fd.get(), bytes.data(), bytes.size());
  if (count > 0) {
    output_.take(stream, {bytes.data(), std::size_t(count)});
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    output_.close(stream);
    fd.reset();
  }
}

void Worker::drain() {
  for (const auto stream : {WorkerOutput::kOutput, WorkerOutput::kErrors}) {
    for (int reads = 0; pipe(stream) && reads < kReadsAtTheEnd; ++reads) {
      pollfd ready{pipe(stream).get(), POLLIN, 0};
      if (poll(&ready, 1, 0) <= 0) break;
      read(stream);
    }
  }
}

void Worker::close_output() {
  output_.close(WorkerOutput::kOutput);
  output_.close(WorkerOutput::kErrors);
}

Status Workers::start(const AgentSpec& spec, const Round& round, const std::string& flight_folder,
                      const Environment& environment, Consoles& consoles) {
  const int count = round.layout.here();
  raise_descriptor_limit(std::size_t(count) * 6 + 256);  // two pipes, two files, a pidfd, a page
  workers_.reserve(std::size_t(count));
  const std::string interface = interface_of(round, environment);
  for (int local_rank = 0; local_rank < count; ++local_rank) {
    if (end_is_asked_for())  // thousands of ranks take a while
      return Error{.code = Code::kAborted,
                   .detail = "a signal arrived when " + std::to_string(local_rank) + " of " + std::to_string(count) +
                             " had been started"};
    TUTTI_TRY(start_one(spec, round, local_rank, flight_folder, interface, environment, consoles));
  }
  return {};
}

Status Workers::start_one(const AgentSpec& spec, const Round& round, int local_rank, const std::string& flight_folder,
                          const std::string& interface, Environment environment, Consoles& consoles) {
  const Layout& layout = round.layout;
  const int rank = layout.first_rank() + local_rank;
  std::string folder, error_file;
  if (!spec.output.log_dir.empty()) {
    folder = TUTTI_TRY(make_rank_folder(attempt_folder(spec.output.log_dir, spec.job, round.number), rank));
    error_file = folder + "/error.json";
  } else if (!spec.error_files.empty()) {
    error_file = spec.error_files + "rank_" + std::to_string(rank) + ".json";
  }
  if (!error_file.empty()) (void)unlink(error_file.c_str());  // of an earlier attempt
  auto made_page = trace::ProgressPage::create();
  if (!made_page.ok() && local_rank == 0)
    consoles.say("the ranks cannot be monitored: " + to_string(made_page.error()));
  Fd page = made_page.ok() ? *std::move(made_page) : Fd();
  set_worker_variables(environment,
                       WorkerVariables{.rank = rank,
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
                                       .interface = interface,
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
  // Of several that ended since the last call, a crash is more likely the cause, an exit code its consequence.
  std::stable_sort(ended.begin(), ended.end(), [](const Worker* a, const Worker* b) {
    return (a->end().exit.signal != 0) > (b->end().exit.signal != 0);
  });
  return ended;
}

std::vector<int> Workers::send_when_handled(int signal) {
  std::vector<int> without_handler;
  for (Worker& worker : workers_) {
    worker.send_when_handled(signal);
    if (worker.has_pending()) without_handler.push_back(worker.rank());
  }
  return without_handler;
}

void Workers::send_pending() {
  for (Worker& worker : workers_) worker.send_pending();
}

bool Workers::have_pending() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.has_pending(); });
}

void Workers::request_stop(int signal) {
  for (const Worker& worker : workers_) (void)worker.progress().request_stop(signal);  // the signal asks as well
}

void Workers::stop_groups(int signal) {
  for (Worker& worker : workers_) worker.stop_group(signal);
}

void Workers::continue_groups() {
  for (const Worker& worker : workers_) worker.signal_group(SIGCONT);
}

void Stopping::begin(Duration grace) {
  if (!running()) return;
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_stopped();
  }
  grace_ = grace;
  phase_ = Phase::kTold;
  ends_ = Deadline::after(kTellLimit);
}

void Stopping::pass_on(int signal, Duration grace) {
  if (!running()) return;
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_asked();
  }
  grace_ = grace;
  workers_.request_stop(signal);
  ask(signal);
}

void Stopping::ask(int signal) {
  workers_.stop_groups(signal);
  workers_.continue_groups();
  phase_ = Phase::kAsked;
  ends_ = Deadline::after(grace_);
}

void Stopping::kill() {
  for (Worker& worker : workers_) {
    if (worker.alive()) worker.mark_killed();
  }
  workers_.stop_groups(SIGKILL);
  phase_ = Phase::kKilled;
  ends_ = Deadline::after(kStopKillLimit);
}

void Stopping::listen(PollSet& events) const {
  if (ends_ && workers_.any_alive()) events.wake_at(ends_->at());
}

void Stopping::on_time() {
  if (!ends_ || !ends_->expired() || !workers_.any_alive()) return;
  switch (phase_) {
    case Phase::kRunning:
      break;
    case Phase::kTold:
      ask(SIGTERM);
      break;
    case Phase::kAsked:
      kill();
      break;
    case Phase::kKilled:
      for (Worker& worker : workers_) worker.give_up();  // end_descendants() says which of them the kernel keeps
      break;
  }
}

}  // namespace tutti::launch
