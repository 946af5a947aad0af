// What a rank tells of its machine: what is understood survives being written.
#include "tests/fuzz/targets.h"
#include "tutti/runtime/meet_note.h"

namespace tutti::fuzz {

void meet_note(Input input) {
  const auto note = parse_meet_note(text_of(input));
  if (!note.ok()) return promise_sentence(note.error());
  const auto again = parse_meet_note(encode(*note));
  promise(again.ok() && *again == *note, "a note survives being written");
}

}  // namespace tutti::fuzz
