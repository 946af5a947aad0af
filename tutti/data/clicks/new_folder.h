#pragma once
// A folder that appears whole or not at all: it is filled under another name beside it and renamed at the end.
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// Removed with all that is in it unless commit() was called. What a killed process left under the other name is removed
// by the next one that makes the same folder.
class NewFolder {
 public:
  // kInvalidArgument: `path` is there already, or another process is making it; kSystem.
  static Result<NewFolder> create(const std::string& path);
  NewFolder(NewFolder&&) = default;
  ~NewFolder();

  std::string file(const std::string& name) const { return working_ + "/" + name; }
  // Gives the folder its name. What is in it should be on the disk.
  Status commit();

 private:
  NewFolder(std::string path, std::string working, Fd lock)
      : path_(std::move(path)), working_(std::move(working)), lock_(std::move(lock)) {}

  std::string path_, working_;
  Fd lock_;  // a lock on the folder: none once it is committed or moved from
};

}  // namespace tutti
