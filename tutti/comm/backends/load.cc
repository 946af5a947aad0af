#include "tutti/comm/backends/load.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <vector>

#include "tutti/base/env.h"
#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

const std::vector<std::string> kCpuEngines = {"tutti", "gloo", "mpi"}, kCudaEngines = {"ipc", "staged", "nccl"};

std::vector<std::string> folders() {
  if (const auto given = env("TUTTI_ENGINE_PATH")) return split(*given, ':');
  std::vector<std::string> all;
  std::error_code failed;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) all.push_back((program.parent_path().parent_path() / "lib/tutti").string());
  all.push_back(TUTTI_INSTALLED_ENGINES);
  return all;
}

// An opened library and its path.
struct Library {
  void* handle = nullptr;
  std::string path;
};

int scope_of(const std::string& name) {
  if (name == "mpi") return RTLD_GLOBAL;  // Open MPI loads plugins that search for its symbols there
  // A LibTorch of PyTorch's wheels exports the symbols of a Gloo of its own, which is another version.
  return RTLD_LOCAL | RTLD_DEEPBIND;
}

Result<Library> load(const std::string& name) {
  const std::string file = "libtutti_" + name + ".so";
  for (const std::string& folder : folders()) {
    const std::string path = folder + "/" + file;
    if (std::error_code failed; !std::filesystem::exists(path, failed)) continue;
    if (void* const handle = ::dlopen(path.c_str(), RTLD_NOW | scope_of(name))) return Library{handle, path};
    const char* const why = ::dlerror();
    return Error{
        .code = Code::kUnsupported,
        .detail = "the engine " + name + " cannot be loaded from " + path + ": " + (why ? why : "no reason given"),
        .hint = "install what it needs, or take another engine (TUTTI_ENGINE)"};
  }
  return Error{
      .code = Code::kNotFound,
      .detail = "the engine " + name + " is not installed: there is no " + file + " in " + join(folders(), " or "),
      .hint =
          "it is built if its library is found (docs/how-to/choose-an-engine.md); "
          "TUTTI_ENGINE_PATH names another folder"};
}

Result<void*> load_checked(const std::string& name) {
  const Library library = TUTTI_TRY(load(name));
  const auto* const abi = static_cast<const int*>(::dlsym(library.handle, kBackendAbiSymbol));
  if (!abi || !::dlsym(library.handle, kOpenBackendSymbol) || *abi != kBackendAbi)
    return Error{.code = Code::kUnsupported,
                 .detail = "the engine " + name + " in " + library.path + " was built for another version of tutti",
                 .hint = "build and install tutti and its engines together; TUTTI_ENGINE_PATH names another folder"};
  return library.handle;
}

}  // namespace

Result<Engines> parse_engines(const std::string& text) {
  Engines engines;
  std::set<std::string> devices;
  for (const std::string& part : split(text, ',')) {
    const std::size_t colon = part.find(':');
    const std::string device = colon == std::string::npos ? "cpu" : part.substr(0, colon);
    const std::string name = colon == std::string::npos ? part : part.substr(colon + 1);
    if (device != "cpu" && device != "cuda")
      return Error{.code = Code::kUsage,
                   .detail = "the engine \"" + text + "\" names the device \"" + device + "\"",
                   .hint = "known are cpu and cuda, as in cpu:tutti,cuda:nccl"};
    const bool cpu = device == "cpu";
    const auto &own = cpu ? kCpuEngines : kCudaEngines, &other = cpu ? kCudaEngines : kCpuEngines;
    if (std::find(other.begin(), other.end(), name) != other.end())
      return Error{.code = Code::kUsage,
                   .detail = "the engine " + name + " does not support the memory of a " + (cpu ? "CPU" : "GPU"),
                   .hint = "as in cpu:tutti,cuda:nccl; for " + device + " there are " + join(own, ", ")};
    if (std::find(own.begin(), own.end(), name) == own.end())
      return Error{.code = Code::kUsage,
                   .detail = "the engine is \"" + name + "\", which is not known",
                   .hint = did_you_mean(nearest(name, own), "for " + device + " there are " + join(own, ", "))};
    if (!devices.insert(device).second)
      return Error{.code = Code::kUsage,
                   .detail = "\"" + text + "\" names more than one engine for " + device,
                   .hint = "one of each device, as in cpu:tutti,cuda:nccl"};
    (cpu ? engines.cpu : engines.cuda) = name;
  }
  return engines;
}

Result<Engines> chosen_engines(const std::string& option) {
  const auto variable = env("TUTTI_ENGINE");
  if (!option.empty() || !variable) return parse_engines(option.empty() ? "tutti" : option);
  auto engines = parse_engines(*variable);
  if (engines.ok()) return engines;
  Error error = engines.error();
  error.detail = "TUTTI_ENGINE: " + error.detail;
  return error;
}

Status check_heeded(const Engines& engines, const std::string& transport) {
  if (engines.cpu == "tutti") return {};
  std::vector<std::string> given;
  if (!transport.empty() && transport != "auto") given.push_back("the transport " + transport);
  for (const std::string variable :
       {"TUTTI_ALGORITHM", "TUTTI_TRANSPORT", "TUTTI_NETWORK", "TUTTI_STREAMS", "TUTTI_PEER_TIMEOUT"}) {
    const auto value = env(variable);
    const bool says_way = variable == "TUTTI_TRANSPORT";  // which the option overrides
    if (value && !(says_way && (*value == "auto" || !transport.empty()))) given.push_back(variable + "=" + *value);
  }
  if (given.empty()) return {};
  const bool one = given.size() == 1;
  return Error{.code = Code::kUsage,
               .detail = join(given, ", ") + (one ? " is" : " are") +
                         " for the engine tutti, and the bytes are moved by " + engines.cpu,
               .hint = std::string("leave ") + (one ? "it" : "them") + " out, or take the engine tutti"};
}

Result<std::string> probe_backend(const std::string& name, const BackendSetup& setup) {
  void* const library = TUTTI_TRY(load_checked(name));
  const auto probe = reinterpret_cast<ProbeBackend>(::dlsym(library, kProbeBackendSymbol));
  std::string version;
  Error error;
  if (probe && !probe(&setup, &version, &error)) return error;
  return version;
}

Result<std::unique_ptr<Backend>> open_backend(const std::string& name, const BackendSetup& setup) {
  void* const library = TUTTI_TRY(load_checked(name));
  const auto open = reinterpret_cast<OpenBackend>(::dlsym(library, kOpenBackendSymbol));
  Error error;
  std::unique_ptr<Backend> backend(open(&setup, &error));
  if (!backend) return error;
  return backend;
}

}  // namespace tutti::comm
