// What agents of other nodes left in the store, notes apart from each other by a zero byte; and the file in which a
// worker says why it failed. What is understood survives being written.
#include "tests/fuzz/targets.h"
#include "tutti/base/text.h"
#include "tutti/launch/membership/messages.h"
#include "tutti/launch/membership/round.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/launch/roll_call.h"

namespace tutti::fuzz {
namespace {

template <class T, class Parse>
void survives(const std::optional<T>& value, Parse parse) {
  if (!value) return;
  const std::string written = encode(*value);
  const auto again = parse(written);
  promise(again.has_value() && encode(*again) == written, "what agents write of each other survives being written");
}

}  // namespace

void launch(Input input) {
  const auto what = take(input) % 5;
  const std::string text = text_of(input);
  if (what == 0) {
    std::vector<RollNote> notes;
    for (const std::string& part : split(text, '\0')) {
      const auto note = parse_roll_note(part);
      if (!note) return;
      promise(note->ranks >= 1, "a node has ranks");
      promise(parse_roll_note(encode(*note)) == note, "a note survives being written");
      notes.push_back(*note);
    }
    if (const Status checked = check_roll(notes); !checked) promise_sentence(checked.error());
  } else if (what == 1) {
    const auto fault = parse_end(text);
    const std::string written = encode_end(fault);  // which puts a sign for what is no UTF-8
    promise(encode_end(parse_end(written)) == written, "an end survives being written");
    promise(!fault || (fault->code > 0 && fault->code < 256), "a fault has an exit code");
  } else if (what == 3) {
    survives(parse_comer(text), parse_comer);
    survives(parse_roster(text), parse_roster);
    survives(parse_seat(text), parse_seat);
    survives(parse_coordinator(text), parse_coordinator);
    survives(parse_store_pair(text), parse_store_pair);
  } else if (what == 4) {
    const std::string written = encode(parse_news(text));  // what is not understood is a fault
    promise(encode(parse_news(written)) == written, "news survive being written");
  } else {
    const BytesFile file(input);
    promise(error_file_message(file.path()).size() <= text.size() * 6 + 2, "a message is no longer than its file");
  }
}

}  // namespace tutti::fuzz
