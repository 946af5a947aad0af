// An error of another rank: it is a sentence that names the rank, with times and numbers that can be, and is told on as
// it was understood.
#include "tests/fuzz/targets.h"
#include "tutti/comm/agree.h"

namespace tutti::fuzz {

void remote_error(Input input) {
  const Error error = parse_remote_error(text_of(input), 3);
  promise_sentence(error);
  promise(to_string(error).find("rank 3") != std::string::npos, "the sentence names the rank");
  promise(error.waited >= -1 && error.limit >= -1 && error.errno_value >= 0, "what is not known is said so");
  const Error again = parse_remote_error(encode_error(error), 3);
  promise(again.code == error.code && again.hint == error.hint && again.operation == error.operation &&
              again.errno_value == error.errno_value && again.waited == error.waited && again.limit == error.limit &&
              again.cause == error.cause && again.detail == "rank 3: " + error.detail,
          "an error survives being told on");
}

}  // namespace tutti::fuzz
