// Text that a peer sends where JSON is expected: it is a value that survives being sent on, or a sentence that names
// the peer; and the group lives on.
#include <nlohmann/json.hpp>

#include "tests/fuzz/targets.h"
#include "tutti/comm/inproc_world.h"
#include "tutti/comm/json_objects.h"

namespace tutti::fuzz {

void objects(Input input) {
  if (input.size() > 4096) return;  // sent and received by one thread: the link has to hold it
  static const auto* const world = new std::vector<Group>(make_inproc_world(2));  // leaving it would need both ranks
  const Group &me = (*world)[0], &peer = (*world)[1];
  send_bytes(peer, text_of(input), 0);
  try {
    const nlohmann::json value = recv_json(me, 1);
    send_json(peer, value, 0);
    promise(recv_json(me, 1) == value, "a value survives being sent on");
  } catch (const Exception& e) {
    promise_sentence(e.error());
    promise(e.error().code == Code::kCorrupt && e.error().peer == 1, "an error names the peer");
  }
  promise(me.status().ok(), "the group lives on");
}

}  // namespace tutti::fuzz
