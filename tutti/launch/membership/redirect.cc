// Without this a node 0 that somebody starts again would find nobody at its endpoint, and begin a job of its own as
// soon as MIN nodes are there. It is found within a second or two; should it have begun by then, it ends that.
//
// A node that was cut off does not know yet that another one has taken the store over from it, perhaps at an address
// where the store once was. A word there would lead the whole job astray. So only a store that began with nothing gets
// one: what took over from anybody, ourselves included, has the list of former places in its table.
#include "tutti/launch/membership/redirect.h"

#include "tutti/launch/membership/keys.h"
#include "tutti/store/tcp_store.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr auto kSignpostTurn = std::chrono::seconds(1);
constexpr auto kSignpostTry = std::chrono::seconds(1);
constexpr auto kOfStrangers = std::chrono::seconds(30);  // to look again at a port that another job has by now

}  // namespace

Redirect::Redirect(std::vector<Address> former, const Address& here, Credentials credentials,
                   std::function<void(const std::string&)> say)
    : former_(places(std::move(former))),
      here_(to_string(here)),
      credentials_(std::move(credentials)),
      say_(std::move(say)),
      ticker_(kSignpostTurn, [this] { turn(); }) {}

std::vector<Redirect::Place> Redirect::places(std::vector<Address> addresses) {
  std::vector<Place> places;
  for (Address& address : addresses) places.push_back({.address = std::move(address)});
  return places;
}

void Redirect::turn() {
  for (Place& place : former_) {
    if (!ending_ && now() >= place.next) look(place);
  }
}

void Redirect::look(Place& place) {
  if (!connect(place.address, Deadline::after(kSignpostTry), /*retry=*/false).ok()) return;
  const auto store = TcpStore::connect(place.address, credentials_, -1, Deadline::after(kSignpostTry));
  if (!store.ok()) {
    if (store.error().code == Code::kRefused || store.error().code == Code::kMismatch)
      place.next = now() + kOfStrangers;
    return;
  }
  (*store)->set_call_timeout(kSignpostTry);
  const auto took_over = (*store)->check({keys::kFormer});
  if (!took_over.ok() || *took_over) return;
  const auto known = (*store)->check({keys::kMoved});
  if (!known.ok()) return;
  if (*known) {
    const auto sign = (*store)->get(keys::kMoved, Deadline::after(kSignpostTry));
    if (!sign.ok() || *sign == here_) return;
  }
  if (!(*store)->set(keys::kMoved, here_)) return;  // in a second again
  say_("somebody began to serve the job's store at " + to_string(place.address) +
       " again, and is told that it is here, at " + here_);
}

}  // namespace tutti
