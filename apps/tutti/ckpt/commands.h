#pragma once
// The commands of `tutti ckpt`, a file each (ckpt.cc lists them), and what they share.
#include <string>
#include <vector>

#include "apps/options/command_line.h"
#include "apps/tutti/progress.h"
#include "tutti/checkpoint/open.h"
#include "tutti/checkpoint/tools/pieces.h"

namespace tutti::cli {

int ckpt_ls_command(std::vector<std::string> arguments);
int ckpt_show_command(std::vector<std::string> arguments);
int ckpt_verify_command(std::vector<std::string> arguments);
int ckpt_diff_command(std::vector<std::string> arguments);
int ckpt_extract_command(std::vector<std::string> arguments);
int ckpt_reshard_command(std::vector<std::string> arguments);
int ckpt_merge_command(std::vector<std::string> arguments);
int ckpt_prune_command(std::vector<std::string> arguments);
int ckpt_import_command(std::vector<std::string> arguments);
int ckpt_gpt2_command(std::vector<std::string> arguments);

// --help, and the last of several values of an option, as all of them have.
void dress(CLI::App& app, const char* footer, const char* synopsis);
// The exit code; an error is reported first.
int end_of(const CLI::App& app, const Result<int>& code);

// open_tensors(), and a warning with the objects of a PyTorch file that are not read.
Result<std::unique_ptr<TensorSource>> open_source(const std::string& path);
Result<std::unique_ptr<TensorSource>> open_source(std::span<const std::string> paths);
void warn_of_skipped(const std::string& path, const std::vector<SkippedObject>& skipped);

// "fc.weight", "fc.weight/momentum": what the commands print and take.
std::string text_of(const TensorKey& key);
// Tensors whose text matches one of the patterns (* and ? as in a shell); all where there is none. kNotFound: a pattern
// matches none.
Result<std::vector<TensorKey>> choose_tensors(const TensorSource& source, const std::vector<std::string>& patterns);
// "0:10, :, 3:" of a tensor of this shape.
Result<TensorBox> parse_box(const std::string& text, const TensorShape& shape);
// Shows how far something is: "verifying: 40 %, 810 MB/s, ETA 3 s".
class ByteProgress {
 public:
  explicit ByteProgress(std::string doing);
  BytesDone callback();
  void clear() { progress_.clear(); }
  // "4.1 GB in 2.3 s, 1.8 GB/s"
  std::string summary(std::uint64_t bytes) const;

 private:
  const std::string doing_;
  const Clock::time_point begin_ = now();
  Progress progress_;
};

}  // namespace tutti::cli
