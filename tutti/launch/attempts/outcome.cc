#include "tutti/launch/attempts/outcome.h"

#include <vector>

#include "tutti/base/text.h"
#include "tutti/launch/exit_codes.h"

namespace tutti {

int code_of_ends(std::span<const WorkerEnd> ends, int user_signal) {
  int saved = 0;
  for (const WorkerEnd& end : ends) {
    const int code = end.exit.shell_code();
    if (code == kExitSaved) saved = kExitSaved;
    if (code != 0 && code != kExitSaved) return end.exit.signal && user_signal ? 128 + user_signal : code;
  }
  return saved;
}

std::string saved_words(std::span<const WorkerEnd> ends, bool told) {
  std::vector<int> saved;
  for (const WorkerEnd& end : ends)
    if (end.exit.shell_code() == kExitSaved) saved.push_back(end.rank);
  return ranks_words(saved) + " left with code 75: what they had is saved, and the job can be started again" +
         (told ? "" : " (nobody told it to stop here)");
}

}  // namespace tutti
