// What agents of other nodes left in the store, notes apart from each other by a zero byte; and the file in which a
// worker says why it failed. What is understood survives being written.
#include "tests/fuzz/targets.h"
#include "tutti/base/text.h"
#include "tutti/launch/report.h"
#include "tutti/launch/roll_call.h"

namespace tutti::fuzz {

void launch(Input input) {
  const auto what = take(input) % 3;
  const std::string text = text_of(input);
  if (what == 0) {
    const auto notes = read_roll(split(text, '\0'));
    if (!notes.ok()) return promise_sentence(notes.error());
    std::vector<std::string> written;
    for (const RollNote& note : *notes) written.push_back(encode(note));
    const auto again = read_roll(written);
    promise(again.ok() && *again == *notes, "a roll survives being written");
    for (const RollNote& note : *notes) promise(note.ranks >= 1, "a node has ranks");
  } else if (what == 1) {
    const auto fault = parse_end(text);
    promise(parse_end(encode_end(fault)) == fault, "an end survives being written");
    promise(!fault || (fault->code > 0 && fault->code < 256), "a fault has an exit code");
  } else {
    const BytesFile file(input);
    promise(error_file_message(file.path()).size() <= text.size() * 6 + 2, "a message is no longer than its file");
  }
}

}  // namespace tutti::fuzz
