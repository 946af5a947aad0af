#pragma once
// What ranks say of their own end, in a file: TORCHELASTIC_ERROR_FILE, as any worker of torchelastic writes it. Without
// log files they are in the user's runtime folder with a name in common, so that nothing is there until a rank writes
// one, however the launcher ends.
#include <string>

namespace tutti {

// Of this process's job, "FOLDER/errors.PID."; empty: there is no such folder. What killed jobs have left there goes.
std::string error_files_prefix();
void remove_error_files(const std::string& prefix);

// Writes what this process says of its failure into the file of TORCHELASTIC_ERROR_FILE, as torchelastic's record()
// does; torchrun prints it. False: the variable is not set, or the file could not be written.
bool write_error_file(const std::string& words);

// The words of an error file: torchelastic's JSON with message a text or an object, or plain text; at most some
// thousand bytes, and none that a terminal would obey. Empty if there are none. What a rank has put in its place that
// is no file (a pipe, a link to somewhere) is not opened.
std::string error_file_message(const std::string& path);

}  // namespace tutti
