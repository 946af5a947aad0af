// Heartbeats: bytes of a stranger are none, whatever they are; those that carry the job's proof are a datagram that
// survives being written, and no clock value in it makes the other side younger than now.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/fuzz/targets.h"
#include "tutti/launch/membership/heartbeat.h"

namespace tutti::fuzz {
namespace {

using Bytes = std::array<std::byte, pulse::kBytes>;
constexpr std::size_t kProof = 16;

const crypto::Digest& key() {
  static const crypto::Digest key = pulse::key_of({.secret = Secret::from_text("fuzz"), .job = "fuzz"});
  return key;
}

}  // namespace

void pulse_datagram(Input input) {
  const bool proves = take(input) % 2 == 1;
  const auto raw = std::as_bytes(input);
  if (!proves) return promise(!pulse::decode(raw, key()), "what carries no proof is no heartbeat");
  Bytes bytes{};
  std::copy_n(raw.begin(), std::min(raw.size(), bytes.size() - kProof), bytes.begin());
  const crypto::Digest proof = crypto::hmac_sha256(key(), std::span(bytes).first(bytes.size() - kProof));
  std::memcpy(bytes.data() + bytes.size() - kProof, proof.data(), kProof);
  const auto datagram = pulse::decode(bytes, key());
  if (!datagram) return;
  promise(pulse::decode(pulse::encode(*datagram, key()), key()) == datagram, "a heartbeat survives being written");
  const auto time = now();
  pulse::Life life(time);
  life.prove(datagram->own, time);
  life.prove(datagram->other, time);
  promise(life.silence(time) >= Duration(0), "nobody was heard later than now");
}

}  // namespace tutti::fuzz
