#pragma once
// The files in which ranks say why they failed: TORCHELASTIC_ERROR_FILE, as any worker of torchelastic writes it. With
// --log-dir they are beside the logs. Without, they are in the user's runtime folder and share a prefix, so nothing is
// there until a rank writes one, however the launcher ends.
#include <string>
#include <string_view>

namespace tutti::launch {

// "FOLDER/errors.PID." for the job of this process; empty: there is no such folder. Removes files of killed jobs.
std::string error_files_prefix();
void remove_error_files(const std::string& prefix);

// Writes the message about this process's failure to the file of TORCHELASTIC_ERROR_FILE, as torchelastic's record()
// does; torchrun prints it. False: the variable is not set, or the file could not be written.
bool write_error_file(const std::string& message);

// The message in an error file: torchelastic's JSON with message a text or an object, or plain text. A Python traceback
// in it, or beside it as record() writes it, is put into the form of Traceback::message(). At most some thousand bytes,
// without bytes that control a terminal; empty if there is none. A pipe or a link in the file's place is not opened.
std::string error_file_message(const std::string& path);

// Whether a text from another process is JSON that nests at most 100 deep. dump() of deeper JSON recurses until the
// stack is used up.
bool is_shallow_json(std::string_view text);

}  // namespace tutti::launch
