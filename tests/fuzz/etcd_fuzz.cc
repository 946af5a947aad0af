// What etcd answers, or whoever stands in its place: a value or a sentence.
#include "tests/fuzz/targets.h"
#include "tutti/store/etcd/api.h"

namespace tutti::fuzz {
namespace {

template <class T>
void is_a_value_or_a_sentence(const Result<T>& result) {
  if (!result.ok()) promise_sentence(result.error());
}

}  // namespace

void etcd(Input input) {
  const auto what = take(input) % 7;
  const std::string text = text_of(input);
  std::int64_t revision = 0;
  switch (what) {
    case 0: {
      const auto answer = tutti::etcd::parse_transaction(text);
      is_a_value_or_a_sentence(answer);
      return promise(!answer.ok() || answer->deleted >= 0, "what was deleted is counted");
    }
    case 1:
      return is_a_value_or_a_sentence(tutti::etcd::parse_range(text, revision));
    case 2:
      return is_a_value_or_a_sentence(tutti::etcd::parse_token(text));
    case 3:
      return is_a_value_or_a_sentence(tutti::etcd::parse_lease(text));
    case 4:
      return is_a_value_or_a_sentence(tutti::etcd::parse_seconds_left(text));
    case 5: {
      const auto line = tutti::etcd::parse_watch_line(text, 7);
      if (!line.trouble.ok()) promise_sentence(line.trouble.error());
      return promise(!line.revision || line.trouble.ok(), "a line is a change or trouble");
    }
    default:
      return promise_sentence(tutti::etcd::refusal(500, text));
  }
}

}  // namespace tutti::fuzz
