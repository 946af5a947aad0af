// Frames wait in a queue by the time at which they are due. The frames of a direction keep their order, however the
// jitter falls, but for those that are to be overtaken.
#include "tests/hosts/rough_cable.h"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace tutti::testing {
namespace {

constexpr std::size_t kMost = 65536;    // bytes of a frame
constexpr std::size_t kQueued = 10000;  // frames; more are lost, as anywhere

struct Frame {
  int to;
  std::vector<char> bytes;
};

class Cable {
 public:
  Cable(const Roughness& roughness, std::uint64_t seed) : roughness_(roughness), random_(seed) {}

  void take(int direction, int to, std::vector<char> bytes) {
    if (frames_.size() >= kQueued) return;
    auto due = std::max(last_[std::size_t(direction)], now() + roughness_.delay + part_of(roughness_.jitter));
    if (share() < roughness_.overtaken) {
      due += roughness_.jitter;
    } else {
      last_[std::size_t(direction)] = due;
    }
    const bool twice = share() < roughness_.doubled;
    if (twice) frames_.insert({due + part_of(roughness_.jitter), {to, bytes}});
    frames_.insert({due, {to, std::move(bytes)}});
  }

  int milliseconds_to_next() const {
    if (frames_.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(frames_.begin()->first - now());
    return std::max(0, int(left.count()));
  }

  // What is due goes. An interface that is down takes nothing, as a cable that is pulled.
  void deliver() {
    while (!frames_.empty() && frames_.begin()->first <= now()) {
      const Frame& frame = frames_.begin()->second;
      [[maybe_unused]] const auto written = ::write(frame.to, frame.bytes.data(), frame.bytes.size());
      frames_.erase(frames_.begin());
    }
  }

 private:
  double share() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  Duration part_of(Duration whole) { return std::chrono::duration_cast<Duration>(share() * whole); }

  const Roughness roughness_;
  std::mt19937_64 random_;
  std::multimap<Clock::time_point, Frame> frames_;
  std::array<Clock::time_point, 2> last_{};
};

}  // namespace

Result<Fd> open_tap(const std::string& name) {
  Fd tap(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!tap) return system_error(errno, "cannot open /dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (::ioctl(tap.get(), TUNSETIFF, &request) != 0) return system_error(errno, "cannot make the TAP interface " + name);
  return tap;
}

void carry_frames(int one, int other, const Roughness& roughness, std::uint64_t seed) {
  Cable cable(roughness, seed);
  std::vector<char> room(kMost);
  const int ends[] = {one, other};
  for (;;) {
    pollfd fds[] = {{one, POLLIN, 0}, {other, POLLIN, 0}};
    if (::poll(fds, 2, cable.milliseconds_to_next()) < 0 && errno != EINTR) return;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].revents & (POLLERR | POLLNVAL)) return;
      ssize_t got = 0;
      while ((got = ::read(ends[i], room.data(), room.size())) > 0)
        cable.take(i, ends[1 - i], {room.begin(), room.begin() + got});
    }
    cable.deliver();
  }
}

}  // namespace tutti::testing
