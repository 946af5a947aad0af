// etcd cannot tell which port it got for 0, so two free ones are looked for and given to it; should somebody take them
// in between, it ends, and others are tried.
#include "tests/etcd/etcd_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/harness/reserved_port.h"
#include "tutti/store/etcd/api.h"
#include "tutti/store/etcd/http.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr int kAttempts = 5;

// etcd's gateway shows the server's certificate to etcd itself, so it is a client's as well.
constexpr const char* kMakeCertificates = R"(
set -e
exec 2>openssl.log
key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -days 2 -keyout ca.key -out ca.pem -subj /CN=authority
openssl req -x509 $key -days 2 -keyout stranger.key -out stranger.pem -subj /CN=stranger
printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' > server.ext
printf 'extendedKeyUsage=clientAuth\n' > client.ext
for who in server client; do
  openssl req $key -keyout $who.key -out $who.csr -subj /CN=$who
  openssl x509 -req -in $who.csr -out $who.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $who.ext
done
)";

pid_t launch(const std::string& folder, const std::string& scheme, int port, int peer_port,
             const std::vector<std::string>& options) {
  const std::string client = scheme + "127.0.0.1:" + std::to_string(port),
                    peer = "http://127.0.0.1:" + std::to_string(peer_port), log = folder + "/log";
  std::vector<std::string> words = {"etcd",
                                    "--name",
                                    "one",
                                    "--data-dir",
                                    folder + "/data",
                                    "--listen-client-urls",
                                    client,
                                    "--advertise-client-urls",
                                    client,
                                    "--listen-peer-urls",
                                    peer,
                                    "--initial-advertise-peer-urls",
                                    peer,
                                    "--initial-cluster",
                                    "one=" + peer,
                                    "--max-request-bytes",
                                    "16777216"};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(out, 1);
  ::dup2(out, 2);
  ::execvp("etcd", argv.data());
  ::_exit(127);
}

}  // namespace

bool Certificates::installed() { return std::system("command -v openssl >/dev/null") == 0; }

Certificates::Certificates() : folder_(std::filesystem::temp_directory_path() / "tutti-etcd-pem-XXXXXX") {
  TUTTI_REQUIRE(::mkdtemp(folder_.data()) != nullptr, "cannot make a folder for certificates");
  TUTTI_REQUIRE(std::system(("cd " + folder_ + kMakeCertificates).c_str()) == 0, "openssl made no certificates");
}

Certificates::~Certificates() { std::filesystem::remove_all(folder_); }

bool EtcdServer::installed() { return std::system("command -v etcd >/dev/null") == 0; }

Result<EtcdServer> EtcdServer::start(const std::vector<std::string>& options, const Certificates* certificates) {
  std::vector<std::string> all = options;
  if (certificates != nullptr)
    all.insert(all.end(),
               {"--cert-file", certificates->file("server.pem"), "--key-file", certificates->file("server.key")});
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string folder = std::filesystem::temp_directory_path() / "tutti-etcd-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) return system_error(errno, "cannot make a folder for etcd");
    const test::ReservedPort reserved, peers;
    const int port = reserved.number();
    EtcdServer server(launch(folder, certificates ? "https://" : "http://", port, peers.number(), all), folder, port);
    const Deadline deadline = Deadline::after_seconds(60);
    while (::waitpid(server.pid_, nullptr, WNOHANG) == 0) {
      if (transport::connect({.host = "127.0.0.1", .port = std::uint16_t(port)}, deadline.at_most(std::chrono::seconds(1)), false)
              .ok())
        return server;
      if (deadline.expired()) return deadline.error("etcd does not listen");
      ::usleep(20000);
    }
    server.pid_ = -1;
  }
  return Error{.code = Code::kSystem, .detail = "etcd ended by itself, five times"};
}

Status EtcdServer::demand_passwords() const {
  const auto http = TUTTI_TRY(etcd::open_http({}));
  const std::string first = etcd::to_base64("/tutti/"), last = etcd::to_base64("/tutti0");
  const std::pair<const char*, std::string> calls[] = {
      {"user/add", R"({"name":"root","password":"of root"})"},
      {"user/add", R"({"name":"tutti","password":"of tutti"})"},
      {"user/add", R"({"name":"guest","password":"of guest"})"},
      {"role/add", R"({"name":"root"})"},
      {"role/add", R"({"name":"jobs"})"},
      {"role/grant",
       R"({"name":"jobs","perm":{"permType":"READWRITE","key":")" + first + R"(","range_end":")" + last + R"("}})"},
      {"user/grant", R"({"user":"root","role":"root"})"},
      {"user/grant", R"({"user":"tutti","role":"jobs"})"},
      {"enable", "{}"}};
  for (const auto& [path, body] : calls) {
    const auto answer = TUTTI_TRY(
        http->post("http://" + endpoint() + "/v3/auth/" + path, body, /*token=*/{}, Deadline::after_seconds(60)));
    if (answer.status != 200)
      return Error{.code = Code::kSystem, .detail = "etcd: " + std::string(path) + ": " + answer.body};
  }
  return {};
}

EtcdServer::~EtcdServer() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  if (!folder_.empty()) std::filesystem::remove_all(folder_);
}

}  // namespace tutti
