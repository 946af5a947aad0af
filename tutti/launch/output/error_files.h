#pragma once
// Where ranks of a job without log files leave their TORCHELASTIC_ERROR_FILE: files in the user's runtime folder with a
// name in common, so that nothing is there until a rank writes one, however the launcher ends.
#include <string>

namespace tutti {

// Of this process's job, "FOLDER/errors.PID."; empty: there is no such folder.
std::string error_files_prefix();
void remove_error_files(const std::string& prefix);

}  // namespace tutti
