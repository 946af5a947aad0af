// One easy handle for calls, which keeps its connection, and one for streams, whose connection ends with the wait.
//
// Whether an attempt that failed may have had an effect decides if it can be repeated. Only where no connection came
// about is the answer no.
#include "tutti/store/etcd/http.h"

#if __has_include(<curl/curl.h>)
#include <curl/curl.h>
#include <dlfcn.h>

#include <algorithm>

namespace tutti::etcd {
namespace {

struct Curl {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
};

Result<Curl> open_curl() {
  void* library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return Error{.code = Code::kUnsupported,
                 .detail = "etcd is reached through libcurl, which cannot be opened: " + std::string(::dlerror()),
                 .hint = "install libcurl (Debian: apt-get install libcurl4)"};
  Curl curl{};
  const char* lacking = nullptr;
  const auto load = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) lacking = name;
  };
  load(curl.global_init, "curl_global_init");
  load(curl.easy_init, "curl_easy_init");
  load(curl.easy_cleanup, "curl_easy_cleanup");
  load(curl.easy_reset, "curl_easy_reset");
  load(curl.easy_setopt, "curl_easy_setopt");
  load(curl.easy_perform, "curl_easy_perform");
  load(curl.easy_getinfo, "curl_easy_getinfo");
  load(curl.easy_strerror, "curl_easy_strerror");
  load(curl.slist_append, "curl_slist_append");
  load(curl.slist_free_all, "curl_slist_free_all");
  if (lacking != nullptr)
    return Error{.code = Code::kUnsupported, .detail = "libcurl.so.4 has no " + std::string(lacking)};
  curl.global_init(CURL_GLOBAL_DEFAULT);
  return curl;
}

// The library stays open for the life of the process: it cannot be closed safely while other threads use TLS.
const Result<Curl>& curl() {
  static const Result<Curl> opened = open_curl();
  return opened;
}

struct Sink {
  std::string text;  // a whole body, or the line that is not complete yet
  const Http::Line* line = nullptr;
  bool satisfied = false;

  bool take(std::string_view bytes) {
    text += bytes;
    if (line == nullptr) return true;
    for (std::size_t end; (end = text.find('\n')) != std::string::npos;) {
      const std::string one = text.substr(0, end);
      text.erase(0, end + 1);
      if ((*line)(one)) continue;
      satisfied = true;
      return false;
    }
    return true;
  }
};

std::size_t on_bytes(char* bytes, std::size_t size, std::size_t count, void* sink) {
  return static_cast<Sink*>(sink)->take({bytes, size * count}) ? size * count : 0;
}

// Whether the attempt ended before anything of the request had left.
bool nothing_sent(CURLcode code) {
  return code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_SSL_CONNECT_ERROR;
}

// What no waiting mends: null where that is not the trouble. A server that wants a client's certificate says so only
// when it is to answer the first request (TLS 1.3), so this trouble comes under several codes.
const char* lasting_trouble(CURLcode code, std::string_view words) {
  const auto has = [&](const char* part) { return words.find(part) != std::string_view::npos; };
  switch (code) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return "give the authority that signed etcd's certificate (cacert), and etcd the name by which it is reached";
    case CURLE_SSL_CERTPROBLEM:
      return "the client's certificate or its key (ssl_cert, ssl_cert_key) cannot be used";
    default:
      break;
  }
  if (has("certificate required") || has("bad certificate") || has("unknown ca"))
    return "this etcd requires a certificate that it trusts: give one, and its key (ssl_cert, ssl_cert_key)";
  return nullptr;
}

class Easy {
 public:
  Easy(const Curl& curl, Security security) : curl_(curl), handle_(curl.easy_init()), security_(std::move(security)) {}
  ~Easy() { curl_.easy_cleanup(handle_); }
  Easy(const Easy&) = delete;

  CURLcode post(const std::string& url, const std::string& body, const std::string& token, Sink& sink,
                Deadline deadline) {
    curl_.easy_reset(handle_);  // keeps connections
    url_ = url.substr(0, url.find("/v3/"));
    const auto set = [this](CURLoption option, auto value) { curl_.easy_setopt(handle_, option, value); };
    const auto set_file = [&](CURLoption option, const std::string& file) {
      if (!file.empty()) set(option, file.c_str());
    };
    curl_slist* headers = curl_.slist_append(nullptr, "Content-Type: application/json");
    headers = curl_.slist_append(headers, "Expect:");
    if (!token.empty()) headers = curl_.slist_append(headers, ("Authorization: " + token).c_str());
    error_[0] = 0;
    set(CURLOPT_URL, url.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(body.size()));
    set(CURLOPT_POSTFIELDS, body.data());
    set(CURLOPT_HTTPHEADER, headers);
    set(CURLOPT_WRITEFUNCTION, &on_bytes);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&sink));
    set(CURLOPT_ERRORBUFFER, static_cast<char*>(error_));
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_TCP_NODELAY, 1L);
    set(CURLOPT_PROXY, "");  // a proxy for the web is no way to a machine of the cluster
    set(CURLOPT_TIMEOUT_MS, std::max(1L, long(deadline.poll_timeout_ms())));
    set(CURLOPT_CONNECTTIMEOUT_MS, 3000L);  // of one endpoint among several
    set_file(CURLOPT_CAINFO, security_.ca_file);
    set_file(CURLOPT_SSLCERT, security_.certificate_file);
    set_file(CURLOPT_SSLKEY, security_.key_file);
    const CURLcode code = curl_.easy_perform(handle_);
    curl_.slist_free_all(headers);
    return code;
  }

  long status() const {
    long status = 0;
    curl_.easy_getinfo(handle_, CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  Error failure(CURLcode code, Deadline deadline) const {
    const std::string words = error_[0] != 0 ? error_ : curl_.easy_strerror(code);
    if (code == CURLE_OPERATION_TIMEDOUT && deadline.expired()) return deadline.error("etcd did not answer: " + words);
    if (const char* hint = lasting_trouble(code, words))
      return Error{.code = Code::kRefused, .detail = "no connection to etcd at " + url_ + ": " + words, .hint = hint};
    const bool before = nothing_sent(code) || (code == CURLE_OPERATION_TIMEDOUT && status() == 0 && !connected());
    return Error{.code = before ? Code::kUnreachable : Code::kPeerLost,
                 .detail = words,
                 .hint = code == CURLE_COULDNT_CONNECT
                             ? "is etcd running there, and does it listen at that address (--listen-client-urls)?"
                             : ""};
  }

 private:
  bool connected() const {
    double seconds = 0;
    curl_.easy_getinfo(handle_, CURLINFO_CONNECT_TIME, &seconds);
    return seconds > 0;
  }

  const Curl& curl_;
  CURL* handle_;
  Security security_;
  std::string url_;  // of the server, for words
  char error_[CURL_ERROR_SIZE] = {};
};

class CurlHttp final : public Http {
 public:
  CurlHttp(const Curl& curl, const Security& security) : calls_(curl, security), streams_(curl, security) {}

  Result<Response> post(const std::string& url, const std::string& body, const std::string& token,
                        Deadline deadline) override {
    Sink sink;
    const CURLcode code = calls_.post(url, body, token, sink, deadline);
    if (code != CURLE_OK) return calls_.failure(code, deadline);
    return Response{calls_.status(), std::move(sink.text)};
  }

  Result<bool> stream(const std::string& url, const std::string& body, const std::string& token, const Line& line,
                      Deadline deadline) override {
    Sink sink{.line = &line};
    const CURLcode code = streams_.post(url, body, token, sink, deadline);
    if (sink.satisfied) return true;
    if (code == CURLE_OPERATION_TIMEDOUT && deadline.expired()) return false;
    if (code == CURLE_OK)
      return Error{.code = Code::kPeerLost, .detail = "etcd ended the stream: " + sink.text.substr(0, 200)};
    return streams_.failure(code, deadline);
  }

 private:
  Easy calls_, streams_;
};

}  // namespace

Result<std::unique_ptr<Http>> open_http(Security security) {
  if (!curl().ok()) return curl().status();
  return std::unique_ptr<Http>(new CurlHttp(*curl(), security));
}

}  // namespace tutti::etcd

#else

namespace tutti::etcd {

Result<std::unique_ptr<Http>> open_http(Security) {
  return Error{.code = Code::kUnsupported,
               .detail = "this tutti was built without etcd: libcurl's headers were missing",
               .hint = "install them (Debian: apt-get install libcurl4-openssl-dev) and build again"};
}

}  // namespace tutti::etcd

#endif
