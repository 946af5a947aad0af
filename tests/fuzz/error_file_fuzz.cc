// The file in which a worker says why it failed: what it says becomes a message of bounded length.
#include "tests/fuzz/targets.h"
#include "tutti/launch/output/error_files.h"

namespace tutti::fuzz {

void error_file(Input input) {
  const std::string text = text_of(input);
  const BytesFile file(input);
  promise(launch::error_file_message(file.path()).size() <= text.size() * 6 + 2,
          "a message is no longer than its file");
}

}  // namespace tutti::fuzz
