#pragma once
// A wire between two stores, as a proxy: bytes pass both ways until it is cut, which nobody is told, or torn, which
// closes the connection. Threads: any.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>
#include <utility>

#include "tutti/base/fd.h"
#include "tutti/transport/socket.h"

namespace tutti::test {

class StoreWire {
 public:
  explicit StoreWire(transport::Address to) : to_(std::move(to)), thread_([this] { serve(); }) {}
  ~StoreWire() {
    end_ = true;
    wake();
    thread_.join();
  }
  const transport::Address& address() const { return listener_.address; }
  void silence(bool on) {
    silent_ = on;
    wake();
  }
  void tear() {
    torn_ = true;
    wake();
  }
  // Connections that came so far, those that wait for the end of the one before included.
  int connections() const { return connections_; }

 private:
  void wake() { (void)eventfd_write(wake_.get(), 1); }

  void serve() {
    while (!end_) {
      const Fd one = next();
      if (!one) continue;
      const auto other = connect(to_, Deadline::after_seconds(60));
      if (other.ok()) pass(one.get(), other->get());
    }
  }

  // The next connection; none: woken up.
  Fd next() {
    if (waiting_) return std::exchange(waiting_, Fd());
    pollfd events[] = {{listener_.fd.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    await(events);
    return events[0].revents != 0 ? take() : Fd();
  }

  Fd take() {
    Fd one = transport::accept(listener_).or_throw();
    if (one) ++connections_;
    return one;
  }

  void pass(int one, int other) {
    torn_ = false;
    for (char bytes[4096]; !end_ && !torn_;) {
      const bool passes = !silent_;
      pollfd events[] = {{wake_.get(), POLLIN, 0},
                         {waiting_ ? -1 : listener_.fd.get(), POLLIN, 0},
                         {passes ? one : -1, POLLIN, 0},
                         {passes ? other : -1, POLLIN, 0}};
      await(events);
      if (events[1].revents != 0) waiting_ = take();
      if (silent_) continue;
      for (const auto& [event, to] : {std::pair(events[2], other), std::pair(events[3], one)}) {
        if (event.revents == 0) continue;
        const ssize_t got = ::recv(event.fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (got == 0) return;
        if (got > 0 &&
            !transport::send_all(to, std::as_bytes(std::span(bytes, std::size_t(got))), Deadline::after_seconds(60))
                 .ok())
          return;
      }
    }
  }

  void await(std::span<pollfd> events) {
    (void)::poll(events.data(), events.size(), -1);
    for (const pollfd& event : events) {
      eventfd_t ignored;
      if (event.fd == wake_.get() && event.revents != 0) (void)eventfd_read(wake_.get(), &ignored);
    }
  }

  const transport::Address to_;
  transport::Listener listener_ = listen(transport::Address{.host = "127.0.0.1"}).or_throw();
  const Fd wake_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  Fd waiting_;  // of the thread
  std::atomic<bool> end_{false}, silent_{false}, torn_{false};
  std::atomic<int> connections_{0};
  std::thread thread_;
};

}  // namespace tutti::test
