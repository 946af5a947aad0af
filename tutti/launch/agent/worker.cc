#include "tutti/launch/agent/worker.h"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>

#include "tutti/base/machine.h"

namespace tutti {
namespace {

// Bounded, so that a worker that writes without end does not keep the others from being heard; and it lies on the
// stack, which may be small.
constexpr std::size_t kBite = 16 * 1024;
constexpr int kBitesAtTheEnd = 128;  // more than a pipe holds

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

void Worker::signal_alone(int signal) const {
  if (alive_) kill(end_.pid, signal);  // not reaped yet, so the number is still this worker's
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
  std::array<char, kBite> bite;  // NOLINT: filled by read()
  const ssize_t count = ::read(fd.get(), bite.data(), bite.size());
  if (count > 0) {
    output_.take(stream, {bite.data(), std::size_t(count)});
  } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
    output_.close(stream);
    fd.reset();
  }
}

void Worker::drain() {
  for (const auto stream : {WorkerOutput::kOutput, WorkerOutput::kErrors}) {
    for (int bites = 0; pipe(stream) && bites < kBitesAtTheEnd; ++bites) {
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

}  // namespace tutti
