// What a rank tells about its machine: what is understood survives being written.
#include "tests/fuzz/targets.h"
#include "tutti/runtime/introduction.h"

namespace tutti::fuzz {

void introduction(Input input) {
  const auto note = runtime::parse_introduction(text_of(input));
  if (!note.ok()) return promise_sentence(note.error());
  const auto again = runtime::parse_introduction(encode(*note));
  promise(again.ok() && *again == *note, "an introduction survives being written");
}

}  // namespace tutti::fuzz
