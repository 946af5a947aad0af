// tutti status, tutti top: what the agents of a running job say of its ranks, once or again and again.
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "apps/options/help_text.h"
#include "apps/tutti/command.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/monitor/node_status.h"
#include "tutti/launch/monitor/status_server.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::cli {
namespace in_status {
namespace {

constexpr auto kAnswerLimit = std::chrono::seconds(5);  // of all agents together, which may have to ask other nodes
constexpr auto kShortestPause = std::chrono::milliseconds(100);  // between two looks
constexpr const char* kFooter = R"(
Asks the agent (tutti run) of the job on this host, which also knows the state of the job's other nodes. You cannot ask
for jobs of other users. Without JOB, the command takes the only job on this host, or lists the jobs if there are
several. Where two jobs have one name, give the pid of a tutti run or of its agent as JOB.

Lines above the table report problems: a slow rank, a node that does not answer, checkpoints that were not saved.

Columns:
  STATE         runs, slow (all other ranks mostly wait for it), stopped (SIGSTOP or a debugger), ended, failed
  STEP, STEP/S  as the program reports them with world.step(n)
  WAITS         share of the rank's time in calls, lately
  PROGRESS      time since the rank's last progress (a step, a call that began or ended), as its node last reported
  MEMORY        resident
  DOING, FOR    the rank's current operation, and for how long

Exit codes:
  0  the job answered
  1  the job did not answer, or no such job runs on this host
  2  wrong usage)";

// Why a job that does run may not be found.
std::string where_looked() {
  const auto folder = rendezvous::find_runtime_directory(current_environment());
  if (!folder.ok() && folder.error().errno_value != ENOENT) return to_string(folder.error());
  return (folder.ok() ? "looked in " + *folder : "your jobs have no folder here yet") +
         ": jobs of other users are not there, nor those that were started with another " + "XDG_RUNTIME_DIR or TMPDIR";
}

// The process that a shell knows as `tutti run`: the parent of the agent. 0: the agent has gone.
int supervisor_of(int agent) {
  std::ifstream status("/proc/" + std::to_string(agent) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return int(parse_int(trim(line.substr(5))).value_or(0));
  return 0;
}

bool is_meant(const launch::StatusSocket& socket, const std::string& job) {
  return socket.job_file == rendezvous::file_name_of(job) || std::to_string(socket.agent) == job ||
         std::to_string(supervisor_of(socket.agent)) == job;
}

struct Asked {
  launch::StatusSocket socket;
  Result<std::string> answered;
};

// All at once: one that is stopped does not keep the others waiting.
std::vector<Asked> ask_all(std::vector<launch::StatusSocket> sockets) {
  const Deadline deadline = Deadline::after(kAnswerLimit);
  std::vector<Result<std::future<Result<std::string>>>> answers;
  for (const launch::StatusSocket& socket : sockets)
    answers.push_back(start_async([path = socket.path, deadline] { return launch::ask_status(path, deadline); }));
  std::vector<Asked> all;
  for (std::size_t i = 0; i < sockets.size(); ++i)
    all.push_back({std::move(sockets[i]), answers[i].ok() ? answers[i]->get() : answers[i].status()});
  return all;
}

// The present number of the agent's node. Its socket has the number with which it began; in an elastic job, nodes that
// come and go change it.
int node_of(const launch::StatusSocket& socket, const std::string& answer) {
  const auto nodes = launch::parse_answer(answer);
  return nodes.ok() && !nodes->empty() ? nodes->front().node : socket.node;
}

// The answer of the job that was asked for: from one of its agents, which knows the others. Two agents of the same node
// belong to two jobs.
Result<std::string> answer_of(const std::string& job) {
  std::vector<launch::StatusSocket> meant = launch::status_sockets();
  std::erase_if(meant, [&](const launch::StatusSocket& socket) { return !is_meant(socket, job); });
  Error last{
      .code = Code::kNotFound,
      .detail = "no job of the name " + job + " runs on this host",
      .hint = "its name stands in the first line of tutti run; tutti status alone lists your jobs; " + where_looked()};
  std::string answer;
  std::optional<launch::StatusSocket> answers;
  for (auto& [socket, answered] : ask_all(std::move(meant))) {
    if (answered.ok() && answers && node_of(socket, *answered) != node_of(*answers, answer)) continue;
    if (answered.ok() && answers)
      return Error{.code = Code::kUsage,
                   .detail = "two jobs of the name " + job + " run on this host, with the agents " +
                             std::to_string(socket.agent) + " and " + std::to_string(answers->agent),
                   .hint = "name one by its agent: tutti status " + std::to_string(socket.agent)};
    if (answered.ok()) answer = *std::move(answered), answers = socket;
    if (answered.ok() || answered.error().code == Code::kUnreachable) continue;
    last = answered.error();
    last.detail = "job " + socket.job_file + ", agent " + std::to_string(socket.agent) + ": " + last.detail;
    if (last.code == Code::kTimeout)
      last.hint = "is it stopped? kill -CONT " + std::to_string(socket.agent) + " continues it";
  }
  if (answers) return answer;
  return last;
}

// The names of the jobs whose agents live, as they call themselves; of one that does not answer, or in no words of
// ours, as its socket is called.
std::vector<std::string> jobs_here() {
  std::vector<std::string> jobs;
  for (const auto& [socket, answer] : ask_all(launch::status_sockets())) {
    if (!answer.ok() && answer.error().code == Code::kUnreachable) continue;
    const auto nodes = launch::parse_answer(answer.ok() ? *answer : std::string());
    const std::string name = nodes.ok() && !nodes->empty() ? nodes->front().job : socket.job_file;
    if (std::find(jobs.begin(), jobs.end(), name) == jobs.end()) jobs.push_back(name);
  }
  return jobs;
}

Result<std::string> choose_job(const std::string& given) {
  if (!given.empty()) return given;
  const std::vector<launch::StatusSocket> sockets = launch::status_sockets();
  if (sockets.size() == 1 && ::kill(sockets.front().agent, 0) == 0) return sockets.front().job_file;
  const std::vector<std::string> jobs = jobs_here();
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty())
    return Error{.code = Code::kNotFound, .detail = "no job of yours runs on this host", .hint = where_looked()};
  return Error{.code = Code::kUsage,
               .detail = std::to_string(jobs.size()) + " jobs run on this host: " + join(jobs, ", "),
               .hint = "name one of them"};
}

Result<std::string> table_of(const std::string& job, int lines, int width) {
  const std::string answer = TUTTI_TRY(answer_of(job));
  return launch::status_table(TUTTI_TRY(launch::parse_answer(answer)), lines, width);
}

int fail(const char* command, const Error& error) {
  report(command, error);
  return error.code == Code::kUsage ? launch::exit_code_of(error.code) : 1;
}

}  // namespace
}  // namespace in_status

int status_command(std::vector<std::string> arguments) {
  using namespace in_status;
  CLI::App app("Shows the state of the ranks of a running job.", "tutti status");
  std::string job;
  bool json = false;
  set_help(app, kFooter, "tutti status [JOB] [OPTIONS]");
  app.add_option("JOB", job, "the name of the job, or the pid of its tutti run")->type_name("");
  app.add_flag("--json", json, "print the state as JSON");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const auto chosen = choose_job(job);
  if (!chosen.ok()) return fail("tutti status", chosen.error());
  const auto text = json ? answer_of(*chosen) : table_of(*chosen, 0, 0);
  if (!text.ok()) return fail("tutti status", text.error());
  std::fputs(text->c_str(), stdout);
  return 0;
}

int top_command(std::vector<std::string> arguments) {
  using namespace in_status;
  CLI::App app("Shows a live view of a running job, until it ends.", "tutti top");
  std::string job, interval = "1s", count_text;
  set_help(app, kFooter, "tutti top [JOB] [OPTIONS]");
  app.add_option("JOB", job, "the name of the job, or the pid of its tutti run")->type_name("");
  app.add_option("-d,--interval", interval, "time between updates (1s)")->type_name("TIME");
  app.add_option("-n,--count", count_text, "end after N updates (default: when the job ends)")->type_name("N");
  if (const auto code = parse(app, std::move(arguments))) return *code;
  const auto pause = duration("--interval", interval);
  if (!pause.ok()) return fail("tutti top", pause.error());
  if (*pause < kShortestPause)
    return fail("tutti top", usage("--interval " + interval + " would keep the agent busy", "at least 100ms"));
  const auto count = count_text.empty() ? Result<std::int64_t>(0) : whole_number("--count", count_text, 1, 1000000000);
  if (!count.ok()) return fail("tutti top", count.error());
  const auto chosen = choose_job(job);
  if (!chosen.ok()) return fail("tutti top", chosen.error());
  const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  for (std::int64_t looks = 0; *count == 0 || looks < *count; ++looks) {
    if (looks > 0) std::this_thread::sleep_for(*pause);
    winsize window{};
    if (terminal) (void)::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);  // else no limit
    const auto text = table_of(*chosen, window.ws_row > 0 ? std::max(1, window.ws_row - 1) : 0, window.ws_col);
    if (!text.ok() && looks > 0 && text.error().code == Code::kNotFound) {
      std::printf("the job %s has ended\n", chosen->c_str());
      return 0;
    }
    if (!text.ok()) return fail("tutti top", text.error());
    if (terminal) std::fputs("\033[H\033[J", stdout);
    if (std::fputs(text->c_str(), stdout) < 0 || std::fflush(stdout) != 0) return 1;  // main() tells why
  }
  return 0;
}

}  // namespace tutti::cli
