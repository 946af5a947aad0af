#include "tutti/comm/backends/nccl/api.h"

#include <dlfcn.h>

#include <type_traits>

namespace tutti::comm::nccl_engine {
namespace {

constexpr const char* kFiles[] = {"libnccl.so.2", "libnccl.so"};
constexpr int kOldest = 21400;

std::string version_text(int version) {
  return detail::words(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

Result<Api> load(const BackendServices& services) {
  void* const library =
      TUTTI_TRY(services.find_cuda_library({.called = "NCCL", .files = kFiles, .symbol = "ncclCommInitRankConfig"}));
  Api api{};
  const char* missing = nullptr;
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (!function && !missing) missing = name;
  };
#define TUTTI_TAKE(name) take(api.name, #name)
  TUTTI_TAKE(ncclGetVersion);
  TUTTI_TAKE(ncclGetUniqueId);
  TUTTI_TAKE(ncclCommInitRankConfig);
  TUTTI_TAKE(ncclCommGetAsyncError);
  TUTTI_TAKE(ncclCommFinalize);
  TUTTI_TAKE(ncclCommDestroy);
  TUTTI_TAKE(ncclCommAbort);
  TUTTI_TAKE(ncclGetErrorString);
  TUTTI_TAKE(ncclGetLastError);
  TUTTI_TAKE(ncclRedOpCreatePreMulSum);
  TUTTI_TAKE(ncclRedOpDestroy);
  TUTTI_TAKE(ncclAllReduce);
  TUTTI_TAKE(ncclBroadcast);
  TUTTI_TAKE(ncclReduce);
  TUTTI_TAKE(ncclAllGather);
  TUTTI_TAKE(ncclReduceScatter);
  TUTTI_TAKE(ncclSend);
  TUTTI_TAKE(ncclRecv);
  TUTTI_TAKE(ncclGroupStart);
  TUTTI_TAKE(ncclGroupEnd);
#undef TUTTI_TAKE
  int version = 0;
  if (api.ncclGetVersion) api.ncclGetVersion(&version);
  if (missing || version < kOldest)
    return Error{.code = Code::kUnsupported,
                 .detail = "the NCCL found is version " + version_text(version) +
                           (missing ? std::string(" and has no ") + missing : "") + ", expected 2.14.0 or later",
                 .hint = "install a newer one, or name its folder: TUTTI_CUDA_PATH"};
  return api;
}

}  // namespace

std::string Api::version() const {
  int version = 0;
  ncclGetVersion(&version);
  return version_text(version);
}

Error Api::failure(ncclResult_t result, const char* doing, ncclComm_t comm) const {
  const char* const words = ncclGetErrorString(result);
  const char* const last = comm ? ncclGetLastError(comm) : nullptr;
  // NCCL reports an error of another rank as ncclRemoteError. The group itself determines which rank died.
  return Error{
      .code = result == ncclInvalidArgument || result == ncclInvalidUsage ? Code::kUnsupported : Code::kPeerLost,
      .detail =
          std::string("NCCL could not ") + doing + ": " + words + (last && *last ? std::string(" (") + last + ")" : ""),
      .hint = "NCCL_DEBUG=WARN prints more"};
}

Result<const Api*> api(const BackendServices& services) {
  static const Result<Api>* const loaded = new Result<Api>(load(services));
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

}  // namespace tutti::comm::nccl_engine
