// What agents of other nodes say: notes and values in the store (several node notes apart from each other by a zero
// byte), and heartbeats. What is understood survives being written. Bytes of a stranger are no heartbeat; of those that
// carry the job's proof no clock value makes the other side younger than now.
#include <algorithm>
#include <array>
#include <cstring>

#include "tests/fuzz/targets.h"
#include "tutti/base/text.h"
#include "tutti/launch/membership/heartbeat.h"
#include "tutti/launch/membership/protocol.h"

namespace tutti::fuzz {
namespace {

template <class T, class Parse>
void survives(const std::optional<T>& value, Parse parse) {
  if (!value) return;
  const std::string written = encode(*value);
  const auto again = parse(written);
  promise(again.has_value() && encode(*again) == written, "what agents write of each other survives being written");
}

void node_notes(const std::string& text) {
  using namespace launch::membership;
  std::vector<NodeNote> notes;
  for (const std::string& part : split(text, '\0')) {
    const auto note = parse_node_note(part);
    if (!note) return;
    promise(note->ranks >= 1, "a node has ranks");
    promise(parse_node_note(encode(*note)) == note, "a note survives being written");
    notes.push_back(*note);
  }
  if (const Status checked = check_rank_counts(notes); !checked) promise_sentence(checked.error());
}

void fault(const std::string& text) {
  using namespace launch::membership;
  const auto fault = parse_fault(text);
  const std::string written = encode_fault(fault);  // which puts a sign for what is no UTF-8
  promise(encode_fault(parse_fault(written)) == written, "a fault survives being written");
  promise(!fault || (fault->code > 0 && fault->code < 256), "a fault has an exit code");
}

void values(const std::string& text) {
  using namespace launch::membership;
  survives(parse_join_request(text), parse_join_request);
  survives(parse_participants(text), parse_participants);
  survives(parse_assignment(text), parse_assignment);
  survives(parse_coordinator(text), parse_coordinator);
  survives(parse_store_pair(text), parse_store_pair);
  const auto note = parse_note(text);
  promise(!note || note->join.has_value() || text == leave_note(note->leave), "a note joins or leaves");
}

void datagram(Input input) {
  using namespace launch::membership;
  static const crypto::Digest key = heartbeat_key({.secret = transport::Secret::from_text("fuzz"), .job = "fuzz"});
  constexpr std::size_t kProof = 16;
  const bool proves = take(input) % 2 == 1;
  const auto raw = std::as_bytes(input);
  if (!proves) return promise(!parse_datagram(raw, key), "what carries no proof is no heartbeat");
  std::array<std::byte, kDatagramBytes> bytes{};
  std::copy_n(raw.begin(), std::min(raw.size(), bytes.size() - kProof), bytes.begin());
  const crypto::Digest proof = crypto::hmac_sha256(key, std::span(bytes).first(bytes.size() - kProof));
  std::memcpy(bytes.data() + bytes.size() - kProof, proof.data(), kProof);
  const auto parsed = parse_datagram(bytes, key);
  if (!parsed) return;
  promise(parse_datagram(encode(*parsed, key), key) == parsed, "a heartbeat survives being written");
  const auto time = now();
  HeartbeatClient agent(parsed->id, {}, {}, time);
  agent.receive(*parsed, time);
  promise(agent.silence(time) >= Duration(0), "the coordinator was not heard later than now");
  HeartbeatTable table({}, HeartbeatTable::Role::kCoordinator);
  table.expect(parsed->id, time);
  const auto echo = table.receive(*parsed, HeartbeatTable::Socket(16), time);
  promise(!echo || echo->id == parsed->id, "an echo is for the agent that asked");
  for (const SilentAgent& silent : table.silent(time))
    promise(silent.silence >= Duration(0), "an agent was not heard later than now");
}

}  // namespace

void membership(Input input) {
  using namespace launch::membership;
  const auto what = take(input) % 5;
  if (what == 2) return datagram(input);
  const std::string text = text_of(input);
  if (what == 0) return node_notes(text);
  if (what == 1) return fault(text);
  if (what == 3) return values(text);
  const std::string written = encode(parse_round_end(text));  // what is not understood is a fault
  promise(encode(parse_round_end(written)) == written, "the end of a round survives being written");
}

}  // namespace tutti::fuzz
