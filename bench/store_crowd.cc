// How many calls a second one store server carries for many clients: each client is a process with a connection of its
// own and one call under way at a time, as ranks are. Calls are a mix of what a rendezvous does: set, get, add, check.
//   store_crowd [--clients 64] [--seconds 3] [--unix] [--waits] [--floor]
// With --waits also: how long it takes until all have passed a gather_all, over and over.
// With --floor: the same number of bytes to and fro between the same processes, by a loop that does nothing with them:
// what the system's sockets leave for any store.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <thread>

#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "tutti/store/server/server.h"
#include "tutti/store/tcp_store.h"

namespace {

using namespace tutti;

constexpr int kMostClients = 1024;

struct Shared {  // among the processes
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  std::atomic<std::uint64_t> calls[kMostClients];
};

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int client(Shared& shared, int number, const transport::Address& address, const transport::Credentials& credentials,
           int waits, int clients) {
  const auto store = TcpStore::connect(address, credentials, number, Deadline::after_seconds(60)).or_throw();
  const std::string key = "key/" + std::to_string(number), value(32, 'v');
  store->set(key, value).or_throw();
  ++shared.ready;
  while (!shared.go) ::usleep(200);
  for (int round = 0; round < waits; ++round) {
    (void)store->gather_all("all", number, clients, value, Deadline::after_seconds(60)).or_throw();
    shared.calls[number].fetch_add(1, std::memory_order_relaxed);
  }
  while (waits == 0 && !shared.stop) {
    store->set(key, value).or_throw();
    (void)store->get(key, Deadline::after_seconds(60)).or_throw();
    (void)store->add("counter", 1).or_throw();
    (void)store->check({key}).or_throw();
    shared.calls[number].fetch_add(4, std::memory_order_relaxed);
  }
  return 0;
}

constexpr std::size_t kFloorBytes = 72;  // about what a set of the mix above is, with its frame

struct Socket {
  int fd = -1;
  sockaddr_storage name{};
  socklen_t size = 0;
};

Socket floor_socket(const transport::Address& address) {
  Socket made;
  if (!address.path.empty()) {
    auto& local = reinterpret_cast<sockaddr_un&>(made.name);
    local.sun_family = AF_UNIX;
    std::strncpy(local.sun_path, address.path.c_str(), sizeof local.sun_path - 1);
    made.size = sizeof local;
  } else {
    auto& ip = reinterpret_cast<sockaddr_in&>(made.name);
    ip.sin_family = AF_INET;
    ip.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ip.sin_port = htons(address.port);
    made.size = sizeof ip;
  }
  made.fd = ::socket(made.name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return made;
}

void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // in vain on a Unix socket
}

// Answers whatever comes with as much, until the process ends.
void serve_floor(int listener) {
  const int poll = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event wanted{.events = EPOLLIN, .data = {.fd = listener}};
  ::epoll_ctl(poll, EPOLL_CTL_ADD, listener, &wanted);
  epoll_event ready[256];
  char bytes[4096];
  for (;;) {
    const int count = ::epoll_wait(poll, ready, 256, -1);
    for (int i = 0; i < count; ++i) {
      const int fd = ready[i].data.fd;
      if (fd == listener) {
        const int client = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        no_delay(client);
        epoll_event more{.events = EPOLLIN, .data = {.fd = client}};
        ::epoll_ctl(poll, EPOLL_CTL_ADD, client, &more);
        continue;
      }
      const ssize_t got = ::recv(fd, bytes, sizeof bytes, 0);
      if (got <= 0 || ::send(fd, bytes, std::size_t(got), MSG_NOSIGNAL) != got) ::close(fd);
    }
  }
}

int floor_client(Shared& shared, int number, const transport::Address& address) {
  const Socket socket = floor_socket(address);
  if (::connect(socket.fd, reinterpret_cast<const sockaddr*>(&socket.name), socket.size) != 0) return 1;
  no_delay(socket.fd);
  ++shared.ready;
  while (!shared.go) ::usleep(200);
  char bytes[kFloorBytes] = {};
  while (!shared.stop) {
    if (::send(socket.fd, bytes, sizeof bytes, MSG_NOSIGNAL) != ssize_t(sizeof bytes)) return 1;
    if (::recv(socket.fd, bytes, sizeof bytes, MSG_WAITALL) != ssize_t(sizeof bytes)) return 1;
    shared.calls[number].fetch_add(1, std::memory_order_relaxed);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures one store server with many clients.", "store_crowd");
  cli::set_help(app, "");
  int clients = 64, waits = 0;
  double seconds = 3;
  bool local = false, floor = false;
  app.add_option("--clients", clients, "client processes, each with one call at a time")
      ->check(CLI::Range(1, kMostClients));
  app.add_option("--seconds", seconds, "seconds to measure");
  app.add_option("--waits", waits, "measure N times gather_all by all clients instead");
  app.add_flag("--unix", local, "use a Unix socket instead of TCP");
  app.add_flag("--floor", floor, "measure bare sockets instead of the store");
  if (const auto code = cli::parse(app, {argv + 1, argv + argc})) return *code;

  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared();
  const transport::Credentials credentials{.secret = transport::Secret::random(), .job = "bench"};
  int address_pipe[2];
  if (::pipe2(address_pipe, O_CLOEXEC) != 0) return 1;
  const std::string path = "/tmp/tutti-store-crowd-" + std::to_string(::getpid());
  for (int number = 0; number < clients; ++number) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    transport::Address address;
    std::uint16_t port = 0;
    if (::read(address_pipe[0], &port, sizeof port) != sizeof port) ::_exit(1);
    address = local ? transport::Address{.path = path} : transport::Address{.host = "127.0.0.1", .port = port};
    ::_exit(floor ? floor_client(shared, number, address)
                  : client(shared, number, address, credentials, waits, clients));
  }
  std::unique_ptr<StoreServer> server;
  std::uint16_t port = 0;
  if (floor) {
    Socket listener = floor_socket(local ? transport::Address{.path = path} : transport::Address{});
    if (::bind(listener.fd, reinterpret_cast<sockaddr*>(&listener.name), listener.size) != 0) return 1;
    ::listen(listener.fd, kMostClients);
    ::getsockname(listener.fd, reinterpret_cast<sockaddr*>(&listener.name), &listener.size);
    if (!local) port = ntohs(reinterpret_cast<sockaddr_in&>(listener.name).sin_port);
    std::thread(serve_floor, listener.fd).detach();
  } else {
    server = StoreServer::start(local ? transport::Address{.path = path} : transport::Address{.host = "127.0.0.1"},
                                credentials)
                 .or_throw();
    port = server->address().port;
  }
  for (int i = 0; i < clients; ++i)
    if (::write(address_pipe[1], &port, sizeof port) != sizeof port) return 1;
  const auto started = now();
  while (shared.ready < clients) ::usleep(200);
  std::printf("%d clients were let in after %.3f s\n", clients, seconds_since(started));
  const double cpu = cpu_seconds(RUSAGE_SELF);
  const auto begin = now();
  shared.go = true;
  if (waits == 0) ::usleep(useconds_t(seconds * 1e6));
  shared.stop = true;
  if (waits != 0)
    while (::wait(nullptr) > 0) {
    }
  const double wall = seconds_since(begin), server_cpu = cpu_seconds(RUSAGE_SELF) - cpu;
  std::uint64_t calls = 0;
  for (int i = 0; i < clients; ++i) calls += shared.calls[i];
  while (::wait(nullptr) > 0) {
  }
  // Where others use the machine too, this says what two idle cores would carry.
  const double us = 1e6 / double(calls), all_cpu = server_cpu + cpu_seconds(RUSAGE_CHILDREN);
  std::printf("%.0f calls/s (%d clients, %.1f s); processor time a call: server %.2f us, clients %.2f us\n",
              double(calls) / wall, clients, wall, server_cpu * us, (all_cpu - server_cpu) * us);
  std::printf("%.0f calls/s for each core that the two had\n", double(calls) / all_cpu);
  if (waits != 0) std::printf("%.3f ms a gather_all of %d\n", wall / waits * 1e3, clients);
  if (floor && local) ::unlink(path.c_str());
  return 0;
}
