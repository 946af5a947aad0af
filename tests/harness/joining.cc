#include "tests/harness/joining.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "tutti/base/deadline.h"
#include "tutti/store/server/server.h"

namespace tutti::testing {
namespace {

namespace fs = std::filesystem;

std::string default_after(rendezvous::Membership& member) {
  if (!member.store) return {};
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  const Status met = member.store->barrier("test/end", member.rank, member.world_size, deadline);
  return met.ok() ? "met" : to_string(met.error());
}

void write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t size = ::write(fd, text.data() + done, text.size() - done);
    if (size <= 0) return;
    done += std::size_t(size);
  }
}

[[noreturn]] void be_a_rank(const Start& start, int pipe) {
  if (start.before) start.before();
  nlohmann::json json = {{"ok", false}};
  {
    auto member = join(start.options);
    if (member.ok()) {
      json = {{"ok", true},
              {"rank", member->rank},
              {"world_size", member->world_size},
              {"local_rank", member->local_rank},
              {"job", member->job},
              {"local_host", member->local_host},
              {"started_by", member->started_by},
              {"store_address", member->store ? to_string(member->store_address) : ""},
              {"serves", member->server != nullptr},
              {"fingerprint", member->credentials.secret.fingerprint()}};
      json["extra"] = start.after ? start.after(*member) : default_after(*member);
    } else {
      json["error"] = to_string(member.error());
    }
  }
  write_all(pipe, json.dump() + "\n");
  ::_exit(0);
}

}  // namespace

Ranks::Ranks() {
  std::string pattern = fs::temp_directory_path() / "tutti-ranks-XXXXXX";
  folder_ = ::mkdtemp(pattern.data());
}

Ranks::~Ranks() {
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i].pid > 0) kill(int(i));
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

int Ranks::start_helper(const std::function<void(int)>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  Process process;
  process.log_file = folder_ + "/log-" + std::to_string(processes_.size());
  process.pid = ::fork();
  if (process.pid < 0) throw std::runtime_error("fork failed");
  if (process.pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::alarm(100);  // a test that hangs must not leave a rank behind
    ::close(ends[0]);
    const int log = ::open(process.log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(log, STDERR_FILENO);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  process.pipe = Fd(ends[0]);
  processes_.push_back(std::move(process));
  return int(processes_.size()) - 1;
}

int Ranks::start(const Start& start) {
  return start_helper([this, &start](int pipe) {
    ::clearenv();
    ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
    for (const auto& [name, value] : start.environment) ::setenv(name.c_str(), value.c_str(), 1);
    be_a_rank(start, pipe);
  });
}

std::string Ranks::read_line(int index) {
  std::string line;
  char c;
  while (::read(processes_.at(std::size_t(index)).pipe.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

Report Ranks::wait(int index) {
  Process& process = processes_.at(std::size_t(index));
  const std::string line = read_line(index);
  Report report;
  report.pid = process.pid;
  int status = 0;
  ::waitpid(process.pid, &status, 0);
  process.pid = -1;
  std::ostringstream log;
  log << std::ifstream(process.log_file).rdbuf();
  report.log = log.str();
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    ADD_FAILURE() << "rank process " << index << " ended with status " << status << ", log:\n" << report.log;
    return report;
  }
  report.ok = json["ok"];
  report.error = json.value("error", "");
  report.rank = json.value("rank", -1);
  report.world_size = json.value("world_size", -1);
  report.local_rank = json.value("local_rank", -2);
  report.job = json.value("job", "");
  report.local_host = json.value("local_host", "");
  report.store_address = json.value("store_address", "");
  report.started_by = json.value("started_by", "");
  report.fingerprint = json.value("fingerprint", "");
  report.serves = json.value("serves", false);
  report.extra = json.value("extra", "");
  return report;
}

void Ranks::kill(int index) {
  Process& process = processes_.at(std::size_t(index));
  if (process.pid <= 0) throw std::logic_error("there is no such process");  // -1 is "everybody" to kill()
  ::kill(process.pid, SIGKILL);
  ::waitpid(process.pid, nullptr, 0);
  process.pid = -1;
}

std::vector<Report> Ranks::run(const std::vector<Start>& starts) {
  std::vector<int> indices;
  for (const Start& one : starts) indices.push_back(start(one));
  std::vector<Report> reports;
  for (const int index : indices) reports.push_back(wait(index));
  return reports;
}

ReservedPort::ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const int on = 1;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    std::abort();
  number_ = ntohs(address.sin_port);
}

}  // namespace tutti::testing
