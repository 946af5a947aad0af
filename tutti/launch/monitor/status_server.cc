#include "tutti/launch/monitor/status_server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/rendezvous/job_secret.h"

namespace tutti::launch {
namespace {

constexpr const char* kStatusPrefix = "agent-";
constexpr const char* kSuffix = ".sock";
constexpr std::size_t kMostClients = 64;
constexpr auto kStatusPatience = std::chrono::seconds(5);    // with a client that does not read
constexpr auto kStatusTurn = std::chrono::milliseconds(20);  // while an answer is awaited
constexpr auto kClosed = std::chrono::milliseconds(200);     // when this process may open no more descriptors
constexpr std::size_t kMostAnswer = 64 << 20;

// "agent-JOB-NODE.PID.sock", as this file makes them; the name of a job may have '-' and '.' itself.
std::optional<StatusSocket> socket_of(const std::string& name) {
  const std::string_view prefix = kStatusPrefix, suffix = kSuffix;
  if (!name.starts_with(prefix) || !name.ends_with(suffix) || name.size() < prefix.size() + suffix.size()) return {};
  const std::string middle = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  const auto dash = middle.rfind('-'), dot = middle.rfind('.');
  if (dash == std::string::npos || dot == std::string::npos || dot < dash) return {};
  const auto node = parse_int(middle.substr(dash + 1, dot - dash - 1)), agent = parse_int(middle.substr(dot + 1));
  if (!node || !agent || *node < 0 || *agent <= 0 || *node > INT32_MAX || *agent > INT32_MAX) return {};
  return StatusSocket{.job_file = middle.substr(0, dash), .node = int(*node), .agent = int(*agent), .path = {}};
}

}  // namespace

StatusServer::StatusServer(const std::string& job, int node, Answer answer) : answer_(std::move(answer)) {
  const auto folder = rendezvous::runtime_directory(current_environment());
  if (!folder.ok()) {
    trouble_ = to_string(folder.error());
    return;
  }
  rendezvous::sweep_runtime_directory(*folder);
  const std::string path = *folder + "/" + kStatusPrefix + rendezvous::file_name_of(job) + "-" + std::to_string(node) +
                           "." + std::to_string(::getpid()) + kSuffix;
  auto listener = transport::listen(transport::Address{.path = path}, 16);
  if (!listener.ok()) {
    trouble_ = to_string(listener.error());
    return;
  }
  listener_ = *std::move(listener);
  path_ = path;
}

StatusServer::~StatusServer() {
  if (!path_.empty()) (void)::unlink(path_.c_str());  // the next job removes one that stays
}

void StatusServer::take_client() {
  auto accepted = tutti::transport::accept(*listener_);
  if (!accepted.ok()) closed_until_ = now() + kClosed;  // the client stays in the backlog, which stays readable
  if (accepted.ok() && *accepted && clients_.size() < kMostClients)
    clients_.push_back({.fd = *std::move(accepted), .asked = now()});
}

void StatusServer::serve(Client& client) {
  if (!client.answer) client.answer = answer_(client.asked);
  client.over = now() - client.asked > kStatusPatience;
  while (client.answer && !client.over) {
    const ssize_t count = ::send(client.fd.get(), client.answer->data() + client.sent,
                                 client.answer->size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count > 0) client.sent += std::size_t(count);
    client.over = count <= 0 || client.sent == client.answer->size();
  }
}

void StatusServer::listen(PollSet& events) {
  if (!listener_) return;
  clients_.remove_if([](const Client& client) { return client.over; });
  if (now() >= closed_until_) {
    events.watch(listener_->fd.get(), POLLIN, [this] { take_client(); });
  } else {
    events.wake_at(closed_until_);
  }
  for (Client& client : clients_) {
    serve(client);
    if (client.over) continue;
    if (client.answer) events.watch(client.fd.get(), POLLOUT, [this, &client] { serve(client); });
    events.wake_after(client.answer ? Duration(kStatusPatience) : Duration(kStatusTurn));
  }
}

std::vector<StatusSocket> status_sockets() {
  std::vector<StatusSocket> sockets;
  const auto folder = rendezvous::find_runtime_directory(current_environment());
  if (!folder.ok()) return sockets;
  std::vector<std::pair<std::filesystem::file_time_type, StatusSocket>> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(*folder, error)) {
    auto socket = socket_of(entry.path().filename());
    if (!socket) continue;
    socket->path = entry.path();
    found.push_back({entry.last_write_time(error), *std::move(socket)});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [time, socket] : found) sockets.push_back(std::move(socket));
  return sockets;
}

void remove_status_sockets(pid_t agent) {
  for (const StatusSocket& socket : status_sockets())
    if (socket.agent == agent) (void)::unlink(socket.path.c_str());
}

Result<std::string> ask_status(const std::string& path, Deadline deadline) {
  const Fd socket = TUTTI_TRY(connect(transport::Address{.path = path}, deadline));
  std::string answer;
  char bytes[16 * 1024];
  while (answer.size() < kMostAnswer) {
    if (!TUTTI_TRY(transport::wait_readable(socket.get(), deadline)))
      return deadline.error("the agent of the job does not answer");
    const ssize_t count = ::read(socket.get(), bytes, sizeof bytes);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return system_error(errno, "could not read the agent's answer");
    if (count == 0) break;
    answer.append(bytes, std::size_t(count));
  }
  if (answer.empty()) return Error{.code = Code::kUnreachable, .detail = "the agent of the job closed the connection"};
  return answer;
}

}  // namespace tutti::launch
