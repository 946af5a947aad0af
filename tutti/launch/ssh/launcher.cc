// Two phases. First every host sends a greeting: only then is the address of the first host known (sshd knows where it
// was reached, which is an address that works, whatever the name resolves to elsewhere), and no rank starts anywhere
// while a host is missing. Then each host gets its instructions. From there on the launchers are nodes of an ordinary
// job: they join, fail and end as one, and this process only carries bytes.
//
// The ssh node's last line says how its launcher ended; all launchers that have joined end with the same code. A
// session that ends without that line was cut off: ssh then exits with 255, which alone could as well be the code of a
// rank. No other node misses a launcher that ends before it has joined, so this process stops the others.
//
// Nothing on a host can hold up this process: the user's third Ctrl-C ends the sessions whatever the hosts do. A helper
// that ssh, or the command in its place, left in the background with these pipes is not waited for.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <optional>

#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/launch/agent/events.h"
#include "tutti/launch/environment.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/launch/output/console.h"
#include "tutti/launch/output/lines.h"
#include "tutti/launch/process.h"
#include "tutti/launch/ssh/master_address.h"
#include "tutti/launch/ssh/ssh.h"
#include "tutti/version.h"

namespace tutti::launch {
namespace {

constexpr const char* kSsh = "ssh";
constexpr int kSshFailed = 255;
constexpr std::string_view kErrorOfRun = "tutti run: ", kErrorOfNode = "tutti node: ";
constexpr auto kSshSayEvery = std::chrono::seconds(5);
constexpr auto kLastLines = std::chrono::seconds(5);        // for the console to take them
constexpr auto kLastOutputLimit = std::chrono::seconds(2);  // for what is still in the pipes of an ended session
constexpr auto kSshTurn = std::chrono::milliseconds(100);
constexpr int kOutputReads = 8;      // more than a pipe holds
constexpr int kMostSshPatience = 3;  // signals that ask for the end

// One host.
struct Session {
  std::string host;
  std::optional<int> ranks;  // none: no count was given
  ChildProcess process;
  Fd input;  // the writing end of its standard input
  LineSplitter output, errors;
  Tail last_lines{5};  // of its standard error
  std::optional<Greeting> greeting;
  std::optional<NodeExit> exit;
  std::optional<Error> unreached;  // why it cannot take part, if the others continue without it
  std::optional<Deadline> ended;   // its process has ended; its pipes are read until then
  std::optional<int> code;         // set once it is over
};

// Quoted for a shell.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

class SshLauncher {
 public:
  explicit SshLauncher(const SshOptions& options) : options_(options) {}
  Result<int> run();

 private:
  Status start_all();
  Status start_one(const std::string& host, std::optional<int> ranks);
  Result<std::string> find_shell(const std::string& name) const;
  Status await_greetings();
  Status check_greetings();
  Status give_up(Session& session, Error why) const;
  Status too_late(const std::vector<std::string>& missing, Deadline deadline);
  Status drop_unreached();
  Status choose_address();
  Status instruct_all();
  Status instruct(const Session& session, std::string_view line, Deadline deadline);
  Instructions instructions_for(int node) const;
  void carry();
  void turn(Deadline at_most);
  void read(Session& session, Fd& fd, LineSplitter& lines, bool is_output);
  void drain(Session& session, bool is_output);
  void on_line(Session& session, bool is_output, std::string_view line);
  void on_signals();
  void on_end(Session& session);
  bool goes_through_ssh(const Session& session) const;
  void cut_off(Session& session);
  void ended_early(const Session& session);
  void pass_on(int signal);
  static void end(Session& session);
  void end_all();
  bool any_alive() const {
    return std::any_of(sessions_.begin(), sessions_.end(), [](const Session& session) { return !session.code; });
  }
  Error unanswered(const Session& session) const;

  const SshOptions& options_;
  Consoles consoles_{options_.log_dir, options_.json, host_name()};
  std::optional<Signals> signals_;
  std::vector<Session> sessions_;
  std::vector<std::string> more_options_;  // from go_without()
  std::string master_address_;
  bool instructed_ = false, early_end_told_ = false;
  int user_signal_ = 0;
  int asked_for_the_end_ = 0;  // how often
  int code_ = 0;
};

Result<int> SshLauncher::run() {
  ::signal(SIGPIPE, SIG_IGN);
  signals_ = TUTTI_TRY(Signals::take());
  Status ready = start_all();
  if (ready) ready = await_greetings();
  if (ready) ready = check_greetings();
  if (ready) ready = drop_unreached();
  if (ready) ready = choose_address();
  if (ready) ready = instruct_all();
  if (!ready) {
    end_all();
    if (user_signal_ == 0) return ready.error();
    consoles_.say(ready.error().detail);
    consoles_.errors().drain(Deadline::after(kLastLines));
    return 128 + user_signal_;
  }
  carry();
  consoles_.output().drain(Deadline::after(kLastLines));
  consoles_.errors().drain(Deadline::after(kLastLines));
  if (consoles_.reader_gone()) return kExitReaderGone;
  return code_ == 0 && consoles_.output_lost() ? 1 : code_;
}

Status SshLauncher::start_all() {
  sessions_.reserve(options_.hosts.hosts.size());
  raise_descriptor_limit(options_.hosts.hosts.size() * 4 + 64);
  const HostList& hosts = options_.hosts;
  for (std::size_t i = 0; i < hosts.hosts.size(); ++i)
    TUTTI_TRY(start_one(hosts.hosts[i], i < hosts.ranks.size() ? std::optional(hosts.ranks[i]) : std::nullopt));
  return {};
}

// The path of ssh or of the command in its place.
Result<std::string> SshLauncher::find_shell(const std::string& name) const {
  auto found = find_program(name, env("PATH").value_or(""));
  if (found.ok()) return found;
  Error error = found.error();
  if (!options_.shell.empty())
    error.detail = "--ssh " + join(options_.shell, " ") + ": " + error.detail;
  else if (name == kSsh)
    error.hint = "install an ssh client, or name another command that reaches the hosts: --ssh COMMAND";
  return error;
}

Status SshLauncher::start_one(const std::string& host, std::optional<int> ranks) {
  const std::vector<std::string> command = session_command(options_, host);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "could not make a pipe for ssh");
  const Fd input(ends[0]);
  Session session{.host = host, .ranks = ranks, .process = {}, .input = Fd(ends[1])};
  session.process = TUTTI_TRY(start_process({.path = TUTTI_TRY(find_shell(command[0])),
                                             .arguments = command,
                                             .environment = to_strings(current_environment()),
                                             .input = input.get()}));
  sessions_.push_back(std::move(session));
  return {};
}

Status SshLauncher::await_greetings() {
  const Deadline deadline = Deadline::after(options_.patience);
  auto next_message = now() + kSshSayEvery;
  for (;;) {
    if (user_signal_ != 0)
      return Error{.code = Code::kAborted, .detail = signal_name(user_signal_) + " arrived before the job started"};
    std::vector<std::string> missing;
    for (Session& session : sessions_) {
      if (session.greeting || session.unreached) continue;
      if (!session.code)
        missing.push_back(session.host);
      else
        TUTTI_TRY(give_up(session, unanswered(session)));
    }
    if (missing.empty()) return {};
    if (deadline.expired()) return too_late(missing, deadline);
    if (now() >= next_message) {
      consoles_.say("waiting for " + join(missing, ", ") + " to answer, for " + seconds_text(deadline.waited()) +
                    " of " + seconds_text(deadline.limit()));
      next_message = now() + kSshSayEvery;
    }
    turn(deadline.at_most(kSshSayEvery));
  }
}

Status SshLauncher::too_late(const std::vector<std::string>& missing, Deadline deadline) {
  const auto error = [&](const std::string& hosts, const std::string& first) {
    return deadline.error("no answer from " + hosts, "does `ssh " + first + " true` return?");
  };
  if (!options_.go_without) return error(join(missing, ", "), missing.front());
  for (Session& session : sessions_)
    if (!session.greeting && !session.unreached) session.unreached = error(session.host, session.host);
  return {};
}

// A host cannot take part: the job does not begin, or the others begin without it.
Status SshLauncher::give_up(Session& session, Error why) const {
  if (!options_.go_without) return why;
  session.unreached = std::move(why);
  return {};
}

Status SshLauncher::drop_unreached() {
  if (!options_.go_without) return {};
  std::vector<std::string> reached;
  std::vector<UnreachedHost> unreached;
  for (Session& session : sessions_) {
    if (session.unreached) {
      unreached.push_back({session.host, *session.unreached});
      end(session);
    } else {
      reached.push_back(session.host);
    }
  }
  std::erase_if(sessions_, [](const Session& session) { return session.unreached.has_value(); });
  more_options_ = options_.go_without(reached, unreached);
  return sessions_.empty() ? Status(unreached.front().why) : Status();
}

// What the dynamic linker did not find; empty: nothing.
std::string missing_library(const std::string& said) {
  constexpr std::string_view kWords = "error while loading shared libraries: ";
  const auto at = said.find(kWords);
  if (at == std::string::npos) return {};
  const std::string rest = said.substr(at + kWords.size());
  return rest.substr(0, rest.find(':'));
}

Error SshLauncher::unanswered(const Session& session) const {
  const auto& words = session.last_lines.lines();
  std::vector<std::string> said(words.begin(), words.end());
  Error error{.code = Code::kUnreachable,
              .detail = session.host + " did not start tutti (exit code " + std::to_string(*session.code) +
                        "): " + (said.empty() ? "it printed nothing" : join(said, "; "))};
  if (*session.code == kSshFailed) {
    error.hint = "ssh must reach " + session.host + " without a prompt: try ssh -o BatchMode=yes " + session.host +
                 " true (keys, ~/.ssh/known_hosts)";
  } else if (const std::string library = missing_library(error.detail); !library.empty()) {
    error.hint = "tutti on " + session.host + " lacks the library " + library +
                 ": install the run-time packages of tutti there (docs/install.md lists them)";
  } else if (*session.code == 127) {
    error.hint = "install tutti on " + session.host + " as " + options_.self + ", or in the PATH that ssh gives there";
  }
  return error;
}

Status SshLauncher::check_greetings() {
  for (Session& session : sessions_) {
    if (session.unreached || session.greeting->version == TUTTI_VERSION) continue;
    TUTTI_TRY(give_up(session, Error{.code = Code::kMismatch,
                                     .detail = session.host + " has tutti " + session.greeting->version +
                                               ", this host " TUTTI_VERSION,
                                     .hint = "install the same version on all hosts"}));
  }
  return {};
}

Status SshLauncher::choose_address() {
  master_address_ = options_.master_address;
  if (!master_address_.empty()) return {};
  std::vector<GreetedHost> hosts;
  for (const Session& session : sessions_) hosts.push_back({.name = session.host, .greeting = *session.greeting});
  const auto found = master_address_of(hosts, options_.iface);
  if (!found.ok() && !options_.go_without) return found.error();
  if (!found.ok()) log::warn(found.error().detail);
  master_address_ = found.ok() ? *found : "127.0.0.1";  // each host says what it finds there
  return {};
}

Instructions SshLauncher::instructions_for(int node) const {
  const Greeting& first = *sessions_.front().greeting;
  Instructions instructions{
      .arguments = {options_.command}, .folder = options_.folder, .variables = options_.variables};
  const auto add = [&](const std::vector<std::string>& words) {
    instructions.arguments.insert(instructions.arguments.end(), words.begin(), words.end());
  };
  std::vector<std::string> counts;
  for (const Session& session : sessions_)
    if (session.ranks) counts.push_back(std::to_string(*session.ranks));
  if (!counts.empty()) add({"-n", join(counts, ",")});
  // First defaults, then the user's options, which may change them, then what must not change.
  add({"--master-port", std::to_string(first.master_port), "--store-port", std::to_string(first.store_port)});
  add(options_.options);
  add(more_options_);
  add({"--master-addr", master_address_, "--nnodes", std::to_string(sessions_.size()), "--node-rank",
       std::to_string(node)});
  if (!options_.program.empty()) add({"--"});
  add(options_.program);
  return instructions;
}

Status SshLauncher::instruct_all() {
  const Deadline deadline = Deadline::after(options_.patience);
  for (std::size_t node = 0; node < sessions_.size(); ++node)
    TUTTI_TRY(instruct(sessions_[node], encode(instructions_for(int(node))) + "\n", deadline));
  instructed_ = true;
  return {};
}

Status SshLauncher::instruct(const Session& session, std::string_view line, Deadline deadline) {
  TUTTI_TRY(set_nonblocking(session.input.get(), true));
  while (!line.empty()) {
    const ssize_t count = write(session.input.get(), line.data(), line.size());
    if (count > 0) {
      line.remove_prefix(std::size_t(count));
    } else if (errno != EAGAIN) {
      return Error{.code = Code::kUnreachable, .detail = session.host + " took no instructions: the session has ended"};
    } else if (deadline.expired()) {
      return deadline.error(session.host + " does not read its instructions", "is it stopped, or without a network?");
    } else {
      pollfd ready{session.input.get(), POLLOUT, 0};
      poll(&ready, 1, deadline.at_most(kSshTurn).poll_timeout_ms());
      on_signals();
      if (user_signal_ != 0)
        return Error{.code = Code::kAborted, .detail = signal_name(user_signal_) + " arrived before the job started"};
    }
  }
  return {};
}

void SshLauncher::carry() {
  while (any_alive()) {
    turn(Deadline::after(kSshSayEvery));
    if (consoles_.lost_reader(any_alive())) pass_on(SIGTERM);
    if (asked_for_the_end_ < kMostSshPatience) continue;
    consoles_.say("a third " + signal_name(user_signal_) + ": not waiting for the hosts any longer");
    end_all();
    code_ = 128 + user_signal_;
    return;
  }
}

void SshLauncher::turn(Deadline at_most) {
  PollSet events;
  for (Session& session : sessions_) {
    if (session.ended && !session.code) events.wake_at(session.ended->at());
    if (!consoles_.output().congested())
      events.watch(session.process.output.get(), POLLIN,
                   [&] { read(session, session.process.output, session.output, true); });
    if (!consoles_.errors().congested())
      events.watch(session.process.errors.get(), POLLIN,
                   [&] { read(session, session.process.errors, session.errors, false); });
  }
  events.watch(signals_->fd(), POLLIN, [&] { on_signals(); });
  consoles_.listen(events);
  events.wake_at(now() + std::chrono::milliseconds(at_most.poll_timeout_ms()));
  events.wait();
  consoles_.pump();
  for (Session& session : sessions_)
    if (!session.code) on_end(session);
}

void SshLauncher::read(Session& session, Fd& fd, LineSplitter& lines, bool is_output) {
  if (!fd) return;
  char bytes[16 * 1024];
  const ssize_t count = ::read(fd.get(), bytes, sizeof bytes);
  const auto sink = [&](std::string_view line) { on_line(session, is_output, line); };
  if (count > 0) return lines.feed({bytes, std::size_t(count)}, sink);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  lines.flush(sink);
  fd.reset();
}

void SshLauncher::drain(Session& session, bool is_output) {
  Fd& fd = is_output ? session.process.output : session.process.errors;
  LineSplitter& lines = is_output ? session.output : session.errors;
  for (int reads = 0; fd && reads < kOutputReads; ++reads) {
    pollfd ready{fd.get(), POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0) break;
    read(session, fd, lines, is_output);
  }
  lines.flush([&](std::string_view line) { on_line(session, is_output, line); });
  fd.reset();
}

void SshLauncher::on_line(Session& session, bool is_output, std::string_view line) {
  if (is_output && !session.greeting) {
    session.greeting = parse_greeting(line);  // other lines come from the login shell
    return;
  }
  if (!is_output) session.last_lines.add(line);
  if (!session.greeting) return;  // unanswered() reports it
  if (is_output && !session.exit && (session.exit = parse_node_exit(line))) return;
  Console& console = is_output ? consoles_.output() : consoles_.errors();
  const bool is_error = line.starts_with(kErrorOfRun) || line.starts_with(kErrorOfNode);
  if (!options_.json) return console.write_line(!is_output && is_error ? session.host + ": " : "", line);
  if (is_json_line(line)) return console.write_line("", line);
  console.write_line("", json_line({.line = line, .from = "ssh"}, session.host, 0, microseconds_since_epoch()));
}

void SshLauncher::on_signals() {
  for (const auto [signal, sender] : signals_->read()) {
    if (signal == SIGCHLD) continue;  // on_end() follows every turn
    if (asks_for_the_end(signal)) user_signal_ = signal, ++asked_for_the_end_;
    pass_on(signal);
  }
}

void SshLauncher::pass_on(int signal) {
  if (!instructed_) return;
  const std::string line = encode_signal(signal) + "\n";
  for (const Session& session : sessions_) {
    // A few bytes into a pipe that has taken all before: if it does not, the session is over.
    if (!session.code) [[maybe_unused]]
      const ssize_t written = write(session.input.get(), line.data(), line.size());
  }
}

// A session is over when its process has ended and both its streams are at their end, or only helpers still hold them
// open.
void SshLauncher::on_end(Session& session) {
  siginfo_t info{};
  const bool dead = waitid(P_PID, id_t(session.process.pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid;
  if (!dead) return;
  if (!session.ended) session.ended = Deadline::after(kLastOutputLimit);
  if ((session.process.output || session.process.errors) && !session.ended->expired()) return;
  drain(session, true);
  drain(session, false);
  kill(-session.process.pid, SIGKILL);  // its helpers; not reaped yet, so the pid is still its own
  int status = 0;
  waitpid(session.process.pid, &status, 0);
  session.code = session.exit ? session.exit->code : exit_of(status).shell_code();
  if (!session.greeting || *session.code == 0) return;
  if (!session.exit)
    cut_off(session);
  else if (!session.exit->joined)
    ended_early(session);
  if (code_ == 0) code_ = *session.code;
}

bool SshLauncher::goes_through_ssh(const Session& session) const {
  return !options_.shell.empty() || !is_this_host(session.host);
}

void SshLauncher::cut_off(Session& session) {
  const bool ssh_failed = *session.code == kSshFailed && goes_through_ssh(session);
  consoles_.say((ssh_failed ? "the connection to " + session.host + " is lost"
                            : "tutti on " + session.host + " ended (code " + std::to_string(*session.code) +
                                  ") and has not reported the result of its ranks") +
                (options_.go_without ? "; the other hosts continue" : "; stopping the job on the other hosts"));
  if (!options_.go_without) pass_on(SIGTERM);
  if (ssh_failed) session.code = options_.go_without ? 1 : kExitRendezvous;
}

// Before the nodes have joined: the others would wait for it until their deadline.
void SshLauncher::ended_early(const Session& session) {
  if (options_.go_without || early_end_told_ || user_signal_ != 0 || !any_alive()) return;
  early_end_told_ = true;
  std::string why;
  for (const std::string& line : session.last_lines.lines())
    for (const std::string_view who : {kErrorOfRun, kErrorOfNode})
      if (why.empty() && line.starts_with(who)) why = ": " + line.substr(who.size());
  consoles_.say(session.host + " ended with code " + std::to_string(*session.code) + " before the job started" + why +
                "; stopping the other hosts");
  pass_on(SIGTERM);
}

void SshLauncher::end(Session& session) {
  session.input.reset();
  if (session.code) return;
  kill(-session.process.pid, SIGKILL);
  waitpid(session.process.pid, nullptr, 0);
}

void SshLauncher::end_all() {
  for (Session& session : sessions_) end(session);
}

}  // namespace

std::vector<std::string> session_command(const SshOptions& options, const std::string& host) {
  const std::string self = quoted(options.self);
  const std::string script = "if [ -x " + self + " ]; then exec " + self + " node; else exec tutti node; fi";
  if (is_this_host(host) && options.shell.empty()) return {"sh", "-c", script};
  std::vector<std::string> command = options.shell;
  if (command.empty()) {
    // No password prompt, and a host that falls silent is noticed.
    command = {kSsh, "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15"};
  }
  // The login shell on the host may be any; sh runs the script.
  command.insert(command.end(), {host, "exec sh -c " + quoted(script)});
  return command;
}

Result<int> run_over_ssh(const SshOptions& options) {
  reset_inherited_state();
  return SshLauncher(options).run();
}

}  // namespace tutti::launch
