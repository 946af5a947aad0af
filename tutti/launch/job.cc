// The order matters: mistakes on the command line are found before anything is started, the supervisor is forked before
// there is a second thread, and only then is the store served.
#include "tutti/launch/job.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/memory.h"
#include "tutti/launch/affinity/rank_table.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/membership/rendezvous.h"
#include "tutti/launch/monitor/status_server.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/launch/prepare.h"
#include "tutti/launch/process.h"
#include "tutti/launch/ssh/ssh.h"
#include "tutti/launch/supervisor.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::launch {
namespace {

// Removed by the supervisor, which outlives an agent that is killed.
class ErrorFiles {
 public:
  ErrorFiles() : prefix_(error_files_prefix()) {}
  ErrorFiles(const ErrorFiles&) = delete;
  ~ErrorFiles() { remove_error_files(prefix_); }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string prefix_;
};

// Started with '&' from a shell: what is typed there is meant for the shell. The kernel would stop a process of this
// session that read it (SIGTTIN), but the ranks are in another session and would read it.
bool in_background_of_terminal() {
  const pid_t foreground = tcgetpgrp(STDIN_FILENO);
  return foreground >= 0 && foreground != getpgrp();
}

// The minimum for an agent: its own descriptors, and for each rank two pipes, a pidfd, a page and a connection.
// Programs, logs and other nodes need more, which is requested as far as the hard limit allows.
Status check_descriptor_limit(int ranks) {
  const std::size_t least = 15 + 5 * std::size_t(ranks);
  raise_descriptor_limit(std::max<std::size_t>(least, 256));
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= least) return {};
  return Error{.code = Code::kLimit,
               .detail = "a process may have " + std::to_string(limit.rlim_max) + " open files here, and to start " +
                         std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + " takes at least " +
                         std::to_string(least),
               .hint =
                   "raise the limit: ulimit -n (nofile in /etc/security/limits.conf, LimitNOFILE= of a service, "
                   "--ulimit nofile of a container), or start fewer ranks"};
}

Result<int> run_prepared(Prepared& job, const Fd& supervisor_gone, const Fd& ssh_node) {
  auto opened = open_rendezvous(job.nodes);
  if (!opened.ok()) {
    Error error = opened.error();
    if (error.code == Code::kAddressInUse)
      error.hint = std::string("the nodes' store needs this port: choose another with ") +
                   (traits_of(job.nodes.backend).numbered ? "--store-port" : "--rdzv-endpoint") +
                   ", the same on all nodes";
    return error;
  }
  const Fd secret = job.nodes.credentials.secret.is_none()
                        ? Fd()
                        : TUTTI_TRY(transport::secret_descriptor(job.nodes.credentials.secret));
  job.agent.secret_fd = secret.get();
  const auto kept = KeptMemory::create();  // a program that needs it reports that it is missing
  if (kept.ok()) job.agent.kept_memory_fd = kept->get();
  job.agent.joined = [&](const Round& round) {
    report_joined(ssh_node);
    if (const Status shown = check_ranks(job.agent, round.layout.counts); !shown) log::warn(shown.error().detail);
  };
  job.agent.table = [](const Round& round) { return rank_table(rows_of(round)); };
  return run_agent(job.agent, **opened, supervisor_gone);
}

}  // namespace

Result<int> run_job(const JobOptions& options) {
  reset_inherited_state();
  const Fd ssh_node = take_joined_descriptor();
  Prepared job = TUTTI_TRY(prepare(options));
  TUTTI_TRY(check_descriptor_limit(job.nodes.counts.here));
  if (in_background_of_terminal()) job.agent.input_rank = -1;
  if (!options.iface.empty()) ::setenv("TUTTI_IFACE", options.iface.c_str(), 1);  // for the workers
  std::optional<ErrorFiles> error_files;
  if (job.agent.output.log_dir.empty()) job.agent.error_files = error_files.emplace().prefix();
  const auto agent = [&](const Fd& supervisor_gone) {
    const Result<int> code = run_prepared(job, supervisor_gone, ssh_node);
    if (code.ok()) return *code;
    std::fprintf(stderr, "[tutti] %s\n", to_string(code.error()).c_str());
    return exit_code_of(code.error().code);
  };
  return run_supervised(agent, remove_status_sockets);
}

}  // namespace tutti::launch
