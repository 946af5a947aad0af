// A trace, and a profile: what is taken survives being written, and a profile generates nothing but its own lines.
#include <algorithm>

#include "tests/fuzz/targets.h"
#include "tutti/data/clicks/trace_profile.h"

namespace tutti::fuzz {
namespace {

void generate(const TraceProfile& profile, bool padding) {
  NumpyRandom random(1);
  TraceGenerator generator(profile, padding);
  for (int i = 0; i < 50; ++i)
    promise(std::count(profile.lines.begin(), profile.lines.end(), generator.next(random)) > 0,
            "what is generated is a line of the profile");
}

}  // namespace

void trace_profile(Input input) {
  const std::string text = text_of(input);
  const auto trace = parse_trace(text);
  if (!trace.ok()) {
    promise_sentence(trace.error());
  } else {
    const auto again = parse_trace(to_text(*trace));
    promise(again.ok() && *again == *trace, "a trace survives being written");
    for (const bool padding : {false, true}) {
      const TraceProfile profile = profile_trace(*trace, padding);
      promise(parse_trace_profile(to_text(profile)).ok(), "a profile that was made is one");
      generate(profile, padding);
    }
  }
  const auto profile = parse_trace_profile(text);
  if (!profile.ok()) return promise_sentence(profile.error());
  generate(*profile, false);
  generate(*profile, true);
}

}  // namespace tutti::fuzz
