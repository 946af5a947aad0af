// How many calls a second one store server carries for many clients: each client is a process with a connection of its
// own and one call under way at a time, as ranks are. Calls are a mix of what a rendezvous does: set, get, add, check.
//   store_crowd [--clients 64] [--seconds 3] [--unix] [--waits]
// With --waits also: how long it takes until all have passed a gather_all, over and over.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdio>
#include <new>

#include "tutti/store/store_server.h"
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

int client(Shared& shared, int number, const Address& address, const Credentials& credentials, int waits, int clients) {
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Many clients of one store server");
  int clients = 64, waits = 0;
  double seconds = 3;
  bool local = false;
  app.add_option("--clients", clients, "processes, each with one call at a time")->check(CLI::Range(1, kMostClients));
  app.add_option("--seconds", seconds, "how long");
  app.add_option("--waits", waits, "instead: so many gather_all by all clients");
  app.add_flag("--unix", local, "over a Unix socket instead of TCP");
  CLI11_PARSE(app, argc, argv);

  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Shared& shared = *new (memory) Shared();
  const Credentials credentials{.secret = Secret::random(), .job = "bench"};
  int address_pipe[2];
  if (::pipe2(address_pipe, O_CLOEXEC) != 0) return 1;
  const std::string path = "/tmp/tutti-store-crowd-" + std::to_string(::getpid());
  for (int number = 0; number < clients; ++number) {
    if (::fork() != 0) continue;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    Address address;
    std::uint16_t port = 0;
    if (::read(address_pipe[0], &port, sizeof port) != sizeof port) ::_exit(1);
    address = local ? Address{.path = path} : Address{.host = "127.0.0.1", .port = port};
    ::_exit(client(shared, number, address, credentials, waits, clients));
  }
  const auto server =
      StoreServer::start(local ? Address{.path = path} : Address{.host = "127.0.0.1"}, credentials).or_throw();
  const std::uint16_t port = server->address().port;
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
  return 0;
}
