#pragma once
// The commands of `tutti data`, a file each; data.cc lists them.
#include <string>
#include <vector>

namespace tutti::cli {

int data_criteo_command(std::vector<std::string> arguments);
int data_trace_command(std::vector<std::string> arguments);
int data_text_command(std::vector<std::string> arguments);
int data_tokenize_command(std::vector<std::string> arguments);
int data_bpe_command(std::vector<std::string> arguments);
int data_clicks_command(std::vector<std::string> arguments);

}  // namespace tutti::cli
