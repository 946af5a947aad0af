#pragma once
// A file that torch.save() wrote: a pickle, and beside it the bytes of the storages that it names. Both formats are
// read: the zip archive (since PyTorch 1.6), and the one before it, which begins with a magic number.
#include <map>
#include <memory>
#include <span>
#include <string>

#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/checkpoint/torch/pickle.h"

namespace tutti {

class TorchFile {
 public:
  // The pickle is read, and where the storages lie; not their bytes. Errors name the file.
  static Result<std::unique_ptr<TorchFile>> open(const std::string& path);
  static bool begins_like_one(std::string_view beginning);

  const std::string& path() const { return path_; }
  const Pickle& pickle() const { return pickle_; }
  // Whether bytes can be told to be those that were written: a zip archive has CRC-32s, unless it was written without.
  bool has_digests() const { return has_digests_; }
  // kCorrupt: there is no such storage.
  Result<std::uint64_t> storage_bytes(const std::string& key) const;
  // At its first reading all of a storage is checked. Any thread. kCorrupt names the file, its record and its bytes.
  Status read(const std::string& key, std::uint64_t begin, std::span<std::byte> into) const;

 private:
  struct Storage {
    std::string record;  // for people
    std::uint64_t offset = 0, bytes = 0;
    std::uint32_t crc32 = 0;
    Mutex mutex;
    bool checked TUTTI_GUARDED_BY(mutex) = false;
  };

  Status open_zip(std::uint64_t bytes);
  Status open_old(std::uint64_t bytes);
  Result<Pickle> parse_at(std::uint64_t offset, std::uint64_t file_bytes) const;
  Status check(Storage& storage) const;
  Error corrupt(std::string what) const;

  std::string path_;
  Fd fd_;
  Pickle pickle_;
  bool has_digests_ = false;
  std::map<std::string, std::unique_ptr<Storage>> storages_;
};

// Of a storage's type or a dtype, as safetensors names it: "torch.FloatStorage" and "torch.float32" are F32. Empty: it
// is none. torch.storage.UntypedStorage is U8.
std::string dtype_of_torch(const std::string& name);
std::uint64_t element_bytes_of(const std::string& dtype);

}  // namespace tutti
