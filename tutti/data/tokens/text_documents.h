#pragma once
// The documents of text files, in batches that threads can share.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

enum class TextForm {
  kJsonLines,   // an object a line, of which one value is the document
  kFile,        // the file is a document
  kLine,        // every line
  kParagraphs,  // what stands between empty lines
};

// The files are mapped, not read: memory is what the system can take back.
class TextDocuments {
 public:
  // kNotFound, kSystem; kInvalidArgument: there is no file. `key` of kJsonLines: "text".
  static Result<TextDocuments> open(const std::vector<std::string>& paths, TextForm form, std::string key);

  std::uint64_t bytes() const { return bytes_; }

  // Some MB of whole documents, as they stand in a file.
  struct Batch {
    std::size_t file = 0;
    std::uint64_t begin = 0;  // in the file
    std::string_view text;    // empty: there are no more
  };
  Batch next();
  // Calls with each document of a batch that is not empty, in order; the text is valid during the call. Any thread.
  // kCorrupt: a line that is no JSON object with a string under the key, with file and line.
  Status for_each(const Batch& batch, const std::function<Status(std::string_view document)>& take) const;

 private:
  TextDocuments() = default;
  std::uint64_t batch_end(std::string_view file) const;
  Error bad_line(const Batch& batch, std::string_view line, const std::string& why) const;

  TextForm form_ = TextForm::kFile;
  std::string key_;
  std::vector<std::string> paths_;
  std::vector<Mapping> files_;
  std::uint64_t bytes_ = 0, at_ = 0;  // at_: in the file
  std::size_t file_ = 0;
};

}  // namespace tutti
