#pragma once
// The way from where the job's store once was to where it is: a node that took the store over looks whether anybody
// serves a store of this job at the old places (who is started again with the old command does), and leaves the new
// address there.
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tutti/launch/membership/ticker.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

// Threads: one, besides its own.
class Redirect {
 public:
  // `former`: where the store was; `here`: where it is. The job's own table has keys::kFormer already.
  Redirect(std::vector<Address> former, const Address& here, Credentials credentials,
           std::function<void(const std::string&)> say);
  ~Redirect() { ending_ = true; }  // may take a second

 private:
  struct Place {
    Address address;
    Clock::time_point next{};
  };
  static std::vector<Place> places(std::vector<Address> addresses);
  void turn();
  void look(Place& place);

  std::vector<Place> former_;  // of the ticker
  const std::string here_;
  const Credentials credentials_;
  const std::function<void(const std::string&)> say_;
  std::atomic<bool> ending_{false};
  Ticker ticker_;  // last: it ends first
};

}  // namespace tutti
