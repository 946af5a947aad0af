// Writes the seeds of the corpus into a folder: for each target a few inputs that get far, as the targets take them
// apart. To be run again when a format has changed: fuzz_corpus tests/fuzz/corpus
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <vector>

#include "tests/fuzz/targets.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/format/safetensors.h"
#include "tutti/comm/agree.h"
#include "tutti/comm/links/call_header.h"
#include "tutti/comm/links/network_probe.h"
#include "tutti/comm/sparse_metadata.h"
#include "tutti/data/clicks/packed_format.h"
#include "tutti/doctor/examination.h"
#include "tutti/doctor/pair_probe.h"
#include "tutti/launch/affinity/rank_table.h"
#include "tutti/launch/membership/protocol.h"
#include "tutti/launch/monitor/node_status.h"
#include "tutti/launch/ssh/protocol.h"
#include "tutti/planning/schedules/measured.h"
#include "tutti/planning/training/cluster_file.h"
#include "tutti/planning/training/cluster_presets.h"
#include "tutti/rendezvous/assembly.h"
#include "tutti/runtime/introduction.h"
#include "tutti/store/wire.h"
#include "tutti/trace/flight/dump.h"

namespace tutti::fuzz {
namespace {

std::string folder;

void seed(const std::string& target, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories(folder + "/" + target);
  std::ofstream(folder + "/" + target + "/" + name, std::ios::binary) << bytes;
}

template <class T>
std::string raw(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
std::string bytes_of(std::initializer_list<int> values) {
  std::string bytes;
  for (const int value : values) bytes += char(value);
  return bytes;
}
std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void add_streams() {
  const Request sum{.kind = Kind::kAllReduce, .dtype = DType::kF32, .count = 5};
  seed("call_header", "same",
       bytes_of({int(sum.kind), int(sum.dtype), 0, 0, 5, 0, 1}) +
           raw(comm::expected_header(sum, comm::Algorithm(0), 1, 1)));
  seed("call_header", "other",
       bytes_of({int(Kind::kBroadcast), int(sum.dtype), 0, 1, 5, 0, 1}) +
           raw(comm::expected_header(sum, comm::Algorithm(0), 1, 1)));

  // plan: size - 2, rank, kind, dtype, op, root, count, algorithm, whether headers are right, piece
  const auto call = [](Kind kind, comm::Algorithm algorithm, DType dtype, int ranks, int piece) {
    return bytes_of({ranks - 2, 1, int(kind), int(dtype), 0, 0, 9, int(algorithm), 1, piece}) + std::string(240, 'x');
  };
  seed("plan", "ring", call(Kind::kAllReduce, comm::Algorithm::kRing, DType::kF32, 3, 7));
  seed("plan", "recursive_doubling", call(Kind::kAllReduce, comm::Algorithm::kRecursiveDoubling, DType::kBF16, 4, 200));
  seed("plan", "complex_in_pieces", call(Kind::kAllReduce, comm::Algorithm::kRing, DType::kC128, 2, 5));
  seed("plan", "barrier", call(Kind::kBarrier, comm::Algorithm::kDissemination, DType::kU8, 4, 1));
  seed("plan", "all_gather_v", call(Kind::kAllGatherV, comm::Algorithm::kRing, DType::kI32, 3, 33));
  seed("plan", "broadcast", call(Kind::kBroadcast, comm::Algorithm::kBinomial, DType::kU8, 3, 255));
  seed("plan", "all_to_all", call(Kind::kAllToAll, comm::Algorithm::kPairwise, DType::kF64, 3, 40));

  const auto message = [](std::uint64_t number, DType dtype, int tag, std::size_t count) {
    const comm::CallHeader header{.kind = Kind::kSend, .dtype = dtype, .sequence = number, .count = count, .tag = tag};
    return raw(header) + std::string(count * size_of(dtype), 'm');
  };
  // point_to_point: receives - 1, then for each of them peer and tag, dtype, count; piece; the first peer's share
  const std::string from_first = bytes_of({1, 1, int(DType::kU8), 6, 0x41, int(DType::kF32), 2});
  seed("point_to_point", "past_another_tag",
       from_first + bytes_of({9, 255}) + message(1, DType::kF32, 1, 2) + message(2, DType::kU8, 0, 6) + "..");
  seed("point_to_point", "from_any", bytes_of({0, 0, int(DType::kI64), 3, 255, 0}) + message(1, DType::kI64, 0, 3));
  seed("point_to_point", "too_long", bytes_of({0, 0, int(DType::kI64), 3, 255, 0}) + message(1, DType::kI64, 0, 4));
  seed("point_to_point", "much_to_keep",
       from_first + bytes_of({255, 255}) +
           raw(comm::CallHeader{.kind = Kind::kSend, .dtype = DType::kU8, .sequence = 1, .count = 1u << 26, .tag = 3}) +
           "...");

  const auto chunk = [](std::uint64_t begin, std::uint32_t size) {
    return raw(begin) + raw(size) + raw(std::uint32_t(0x4b4e4843)) + std::string(size, 'c');
  };
  seed("striped_link", "one_stream", bytes_of({0, 11}) + chunk(0, 20) + chunk(20, 5));
  seed("striped_link", "two_streams", bytes_of({1, 255}) + chunk(0, 20) + chunk(40, 4) + chunk(20, 20) + chunk(44, 4));
  seed("striped_link", "overlapping", bytes_of({1, 255}) + chunk(0, 20) + chunk(10, 20));

  seed("network", "questions", bytes_of({0, 0}) + std::string(63, 'q') + bytes_of({2}));
  seed("network", "no_question", bytes_of({0, 9}));
  seed("network", "answers", bytes_of({1}) + std::string(200, 'a'));
  seed("network", "words", bytes_of({2}) + comm::to_words({.latency = 1e-5, .bandwidth = 1e9, .overhead = 1e-6}));
  seed("network", "infinite", bytes_of({2}) + "inf inf 0");
  seed("network", "variable", bytes_of({3}) + "10us,12.5");
}

void add_notes() {
  const runtime::RankIntroduction note{.boot = "b0",
                                       .host = "node1",
                                       .sharing = "node1",
                                       .shm = "/tmp/t/rank",
                                       .cores = {3, 1},
                                       .transport = "auto",
                                       .engines = "cpu:tutti,cuda:staged",
                                       .algorithm = "ring",
                                       .streams = 2};
  seed("introduction", "note", encode(note));
  seed("introduction", "no_utf8", encode({.boot = "\xff", .host = "\xc3", .sharing = "", .shm = "", .cores = {}}));
  seed("introduction", "deep", std::string(2000, char(0x81)));
  seed("introduction", "twice",
       bytes_of({0xa2, 0x64}) + "boot" + bytes_of({0x61}) + "a" + bytes_of({0x64}) + "boot" + bytes_of({0x61}) + "b");

  const std::string zero(1, '\0');
  seed("membership", "notes",
       bytes_of({0}) + encode(launch::membership::NodeNote{.ranks = 2, .listed = {2, 1}, .host = "a"}) + zero +
           encode(launch::membership::NodeNote{.ranks = 1, .listed = {}, .host = "b"}));
  seed("membership", "short_list",
       bytes_of({0}) + encode(launch::membership::NodeNote{.ranks = 2, .listed = {2}, .host = "a"}) + zero +
           encode(launch::membership::NodeNote{.ranks = 1, .listed = {}, .host = "b"}));
  seed("membership", "fault",
       bytes_of({1}) +
           launch::membership::encode_fault(launch::Fault{.text = "rank 2 was killed", .code = 137, .report = true}));
  seed("error_file", "message", R"({"message": {"message": "out of luck", "extraInfo": {}}})");
  seed("error_file", "plain", "out of luck\n");

  seed("ssh", "hosts", bytes_of({0}) + "a:8,user@b:2,[fd00::1]:1");
  seed("ssh", "hostfile", bytes_of({1}) + "a slots=8 # first\nb:2\n\nc 4\n[fd00::1]:3\n");
  seed("ssh", "lines_of_pbs", bytes_of({1}) + "a\na\nb\n");
  seed("ssh", "many_in_all", bytes_of({1}) + "a 4096\na 4096\n");  // found: more than a host may have
  seed("ssh", "greeting",
       bytes_of({2}) + encode(launch::Greeting{.version = "0.1.0",
                                               .host = "a",
                                               .address = "10.0.0.1",
                                               .from = "10.0.0.2",
                                               .master_port = 29500,
                                               .store_port = 29501}));
  seed("ssh", "instructions",
       bytes_of({3}) + encode(launch::Instructions{.arguments = {"run", "-n", "2", "--", "./train"},
                                                   .folder = "/home/me",
                                                   .variables = {{"TUTTI_SECRET", "s"}}}));
  seed("ssh", "signal", bytes_of({3}) + launch::encode_signal(15));
  const launch::NodeStatus node{
      .job = "j",
      .node = 1,
      .nodes = 2,
      .world_size = 3,
      .host = "b",
      .seconds = 90,
      .trouble = "it has told nothing new for 12 s",
      .ranks = {{.rank = 2, .pid = 7, .state = "runs", .step = 12, .waits = 0.5, .doing = "computes"}}};
  seed("status", "node", bytes_of({0}) + encode(node));
  seed("status", "answer", bytes_of({1}) + launch::encode_answer({encode(node)}));
  seed("status", "number_too_large",  // found: was cast to an int
       bytes_of({0}) +
           R"({"job":"j","node":0,"nodes":1,"world_size":1e300,"host":"a","attempt":0,"restarts":0,"ranks":[]})");
  seed("status", "escape",  // found: reached the terminal
       bytes_of({0}) +
           R"({"job":"\u001b[2J","node":0,"nodes":1,"world_size":1,"host":"a","attempt":0,"restarts":0,"ranks":[]})");
  seed("status", "about",
       bytes_of({2}) + encode(launch::NodeInfo{.shares = {"CPU 0", "CPU 0", "CPU 1"}, .run = "0123abcd"}));

  seed("rendezvous", "arrival",
       bytes_of({0}) + encode(rendezvous::RankInfo{
                           .rank = 1, .world_size = 2, .host = "node1", .machine = "m", .pid = 7, .token = "t.u"}));
  seed("rendezvous", "trouble",
       bytes_of({1}) + rendezvous::encode_trouble({.code = Code::kTimeout, .detail = "late", .waited = 2}));
  seed("rendezvous", "address", bytes_of({2}) + "[fe80::1]:80");
  seed("rendezvous", "bracket", bytes_of({2}) + "[[fe80]:80");  // found: was printed as another address
  seed("rendezvous", "unix_address", bytes_of({2}) + "unix:/run/x");
  seed("rendezvous", "hosts", bytes_of({3}) + "a[08-11,13]n[0-1],b3");
  seed("rendezvous", "counts", bytes_of({4}) + "2(x3),1");
  seed("rendezvous", "url", bytes_of({5}) + "tcp://[::1]:4000?rank=0&world_size=2");
  seed("rendezvous", "hosts_file", bytes_of({6}) + "127.0.0.1 localhost\n127.0.1.1 node1 # me\n");

  seed("objects", "value", R"({"a": [1, 2.5, null, "\u00e9"], "b": {}})");
  seed("objects", "deep", std::string(600, '['));
  seed("objects", "number_too_large", "[1e999]");  // found: threw an exception of another library
  seed("objects", "cut", R"({"a": )");
}

void add_what_others_tell() {
  seed("membership", "store_pair",
       bytes_of({3}) + encode(launch::membership::StorePair{
                           .round = 2, .servers = "10.0.0.1:1,10.0.0.2:1", .standby = "a", .votes = "b"}));
  seed("membership", "round_end",
       bytes_of({4}) + launch::membership::encode(launch::RoundEnd{
                           .kind = launch::RoundEnd::Kind::kMembership, .text = "node d came", .gentle = true}));

  const Error full{.code = Code::kSystem, .detail = "cannot write x", .hint = "make room", .errno_value = 28};
  seed("remote_error", "full", encode_error(full));
  seed(
      "remote_error", "numbers_too_large",
      R"({"code":1e300,"detail":"d","hint":"","operation":"","errno":99999999999,"waited":1e300,"limit":-2,"cause":""})");
  const std::int64_t sizes[] = {5, 2};
  const auto row = [&](std::int64_t entries) {
    return raw(to_row({.entries = entries, .sparse_dimensions = 1, .sizes = sizes}));
  };
  seed("sparse_metadata", "tensor", row(3));
  seed("sparse_metadata", "too_many_entries", row(6));
  comm::SparseRow dimensions = comm::to_row({.sizes = sizes});
  dimensions[4] = 1000;  // beyond the row
  seed("sparse_metadata", "too_many_dimensions", raw(dimensions));

  doctor::Message about;
  about.host = "a", about.version = "0.1.0", about.ranks = 2;
  about.target.stream = {.host = "10.0.0.1", .port = 1}, about.target.datagrams = {.host = "10.0.0.1", .port = 2};
  about.findings = {{.grade = doctor::Grade::kWarn, .subject = "cores", .fact = "few", .fix = "more"}};
  seed("doctor", "note", bytes_of({0}) + encode(about));
  seed("doctor", "findings", bytes_of({1}) + to_json(about.findings));
  const std::string measure = to_json(doctor::PairMeasure{.from = 0, .to = 1, .latency = 1e-5, .there = 1e9});
  seed("doctor", "measure", bytes_of({2}) + measure);
  std::string large = measure;  // was cast to an int
  large.replace(large.find("\"from\":0"), 8, "\"from\":1e300");
  seed("doctor", "node_too_large", bytes_of({2}) + large);

  const auto probe = [](doctor::ProbeCommand::Kind kind, std::uint64_t number) {
    const auto bytes = encode(doctor::ProbeCommand{kind, number});
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  using enum doctor::ProbeCommand::Kind;
  seed("probe_command", "measurement",
       probe(kClock, 1) + probe(kDatagrams, 77) + probe(kTake, 256 << 10) +
           probe(kGive, doctor::ProbeCommand::kMostTransfer) + probe(kGoodbye, 0));
  seed("probe_command", "too_large", probe(kTake, ~0ull) + probe(kGive, doctor::ProbeCommand::kMostTransfer + 1));
  seed("probe_command", "another_protocol", "GET / HTTP/1.1\r\n\r\n");

  const auto ping = launch::membership::encode(
      launch::membership::Datagram{.round = 1, .id = 7, .own = 9, .other = 8, .vote = 0}, crypto::Digest{});
  const std::string datagram(reinterpret_cast<const char*>(ping.data()), ping.size());
  seed("membership", "ping", bytes_of({2, 1}) + datagram);
  seed("membership", "without_proof", bytes_of({2, 0}) + datagram);

  seed("etcd", "transaction",
       bytes_of({0}) + R"({"header":{"revision":"7"},"succeeded":true,"responses":[{"response_range":{"kvs":[{"key":)" +
           R"("YQ==","value":"Yg==","mod_revision":"6"}],"count":"1"}},{"response_delete_range":{"deleted":"2"}}]})");
  seed("etcd", "range", bytes_of({1}) + R"({"header":{"revision":"7"},"kvs":[{"key":"YQ=="},3,"x"],"count":1})");
  seed("etcd", "token", bytes_of({2}) + R"({"token":"t.1"})");
  seed("etcd", "lease", bytes_of({3}) + R"({"ID":"7587862094800000000","TTL":"30"})");
  seed("etcd", "left", bytes_of({4}) + R"({"result":{"TTL":"12"}})");
  seed("etcd", "change", bytes_of({5}) + R"({"result":{"events":[{"kv":{"mod_revision":"9"}}]}})");
  seed("etcd", "compacted", bytes_of({5}) + R"({"result":{"canceled":true,"cancel_reason":"compacted"}})");
  seed("etcd", "no_leader", bytes_of({6}) + R"({"code":14})");  // was a refusal without a word

  seed("embedding_wire", "bf16", bytes_of({3, 3}) + std::string(32, 'w'));
  seed("embedding_wire", "i8", bytes_of({2, 3}) + raw(0.5f) + "abcd" + raw(-1e30f) + "\x80\x7f..");
}

void add_files() {
  trace::FlightDump dump{.job = "j",
                         .rank = 1,
                         .world_size = 3,
                         .host = "h",
                         .pid = 4,
                         .reasons = {"lost"},
                         .failed = true,
                         .written = "now",
                         .wall = 1,
                         .monotonic = 9'000'000'000};
  dump.groups = {{.id = 1, .name = "world", .rank = 1, .global_ranks = {0, 1, 2}}};
  dump.operations = {{.sequence = 1,
                      .state = trace::FlightOperation::State::kCompleted,
                      .call = "barrier",
                      .kind = "barrier",
                      .dtype = "u8",
                      .started = 1,
                      .ended = 2},
                     {.sequence = 2,
                      .call = "all_reduce (f32[4], sum)",
                      .kind = "all_reduce",
                      .dtype = "f32",
                      .op = "sum",
                      .count = 4,
                      .bytes = 16,
                      .way = "ring",
                      .site = "a.cc:3",
                      .scheduled = 3,
                      .started = 4},
                     {.exchange = true,
                      .sequence = 1,
                      .call = "send (u8[1], to 0)",
                      .kind = "send",
                      .dtype = "u8",
                      .root = 0,
                      .tag = 5,
                      .count = 1,
                      .bytes = 1,
                      .started = 5}};
  const std::string record = to_text(dump);
  seed("flight", "record", record);
  std::string large = record;  // found: such a number was converted to an int
  large.replace(large.find("\"rank\":1"), 8, "\"rank\":1" + std::string(35, '4'));
  seed("flight", "number_too_large", large);

  const std::string path = folder + "/t";
  const float values[] = {1, 2, 3, 4, 5, 6};
  const std::uint8_t bytes[] = {7, 8, 9};
  const SafetensorsTensor tensors[] = {{.name = "w", .dtype = DType::kF32, .shape = {2, 3}, .data = values},
                                       {.name = "b", .dtype = DType::kU8, .shape = {3}, .data = bytes}};
  Manifest manifest{
      .facts = {.step = 3, .values = {{"lr", 0.5}, {"auc", 0.0 / 0.0}}, .data = {{"epoch", std::int64_t(1)}}},
      .chunk_bytes = 4096,
      .files = {{.name = "model-1", .bytes = 64 + 4800, .header_bytes = 64, .header_crc32c = 5},
                {.name = "model-2", .bytes = 64 + 4 + 80, .header_bytes = 64}}};
  manifest.tensors[{"emb", ""}] = {.shape = {30, 40},
                                   .boxes = {{.box = {{0, 0}, {30, 40}}, .offset = 64, .crc32c = {1, 2}}}};
  manifest.tensors[{"emb", "sum"}] = {.dtype = DType::kI8,
                                      .shape = {10, 8},
                                      .boxes = {{.box = {{0, 0}, {10, 3}}, .file = 1, .offset = 68, .crc32c = {3}},
                                                {.box = {{0, 3}, {10, 5}}, .file = 1, .offset = 98, .crc32c = {4}}}};
  manifest.tensors[{"scale", ""}] = {.shape = {}, .boxes = {{.file = 1, .offset = 64, .crc32c = {5}}}};
  seed("manifest", "boxes", compose_manifest(manifest).or_throw());
  seed("manifest", "empty", compose_manifest({}).or_throw());

  write_safetensors(path, tensors, {{"step", "3"}}).or_throw();
  seed("safetensors", "file", contents(path));
  std::filesystem::remove(path);
  const std::string header = R"({"x":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  seed("safetensors", "without_checksum", raw(std::uint64_t(header.size())) + header + "abcd");

  seed("idx", "plain", bytes_of({0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6}));
  // gzip of {0, 0, 8, 1, 0, 0, 0, 2, 7, 9}, stored
  seed("idx", "gzip",
       bytes_of({0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 10, 0, 0xf5, 0xff, 0, 0, 8, 1, 0, 0, 0, 2, 7, 9}) +
           bytes_of({0, 0, 0, 0, 10, 0, 0, 0}));

  // file_store: a record is size, CRC-32, payload; the second one lies about both.
  seed("file_store", "cut_record", bytes_of({5, 0, 0, 0, 1, 2, 3}));
  seed("file_store", "wrong_sum", bytes_of({4, 0, 0, 0, 1, 2, 3, 4, 'a', 'b', 'c', 'd'}));
  seed("file_store", "endless", bytes_of({255, 255, 255, 127, 1, 2, 3, 4, 'a'}));

  const store::Request set{.op = store::Op::kSet, .keys = {"key"}, .values = {"value"}};
  const std::string body = store::wire::body_of(set);
  seed("store_frame", "set",
       raw(std::uint32_t(5 + body.size())) + raw(std::uint32_t(1)) + bytes_of({int(set.op)}) + body);
  seed("store_frame", "change", store::wire::frame_of_change({.client = 1, .number = 2}, set));
  const store::Origin met[] = {{.client = 1, .number = 2}, {.client = 3, .number = 4}};
  seed("store_frame", "answered", store::wire::frame_of_answered(met, store::Reply{.values = {"value"}}));
  seed("store_frame", "endless", bytes_of({255, 255, 255, 255, 1, 0, 0, 0, 1}));
  seed("handshake", "to_server", bytes_of({0}) + std::string(120, 'h'));
  seed("handshake", "to_client", bytes_of({1}) + std::string(120, 'h'));

  // shm: descriptors, their kind; then the greeting, or the place of a block
  seed("shm", "arena", bytes_of({2, 6}) + raw(std::uint64_t(1 << 21)));
  seed("shm", "not_sealed", bytes_of({2, 2}) + raw(std::uint64_t(1 << 21)));
  seed("shm", "empty", bytes_of({2, 4}) + raw(std::uint64_t(1 << 21)));
  seed("shm", "too_many", bytes_of({4, 6}) + raw(std::uint64_t(1 << 21)));
  seed("shm", "too_much", bytes_of({2, 6}) + raw(~std::uint64_t(0)));
  seed("shm", "place", bytes_of({0, 0}) + "1044480");
}

// What torch.save({"w": torch.tensor([[1., 2.], [3., 4.]]), "lr": 0.5}) writes, but for what is not read.
std::string small_pickle() {
  return bytes_of({0x80, 2, '}', '(', 'X', 1, 0, 0, 0, 'w'}) + "ctorch._utils\n_rebuild_tensor_v2\n((" +
         bytes_of({'X', 7, 0, 0, 0}) + "storagectorch\nFloatStorage\n" + bytes_of({'X', 1, 0, 0, 0, '0'}) +
         bytes_of({'X', 3, 0, 0, 0}) + "cpu" + bytes_of({'K', 4, 't', 'Q', 'K', 0}) +
         bytes_of({'K', 2, 'K', 2, 0x86, 'q', 1, 'K', 2, 'K', 1, 0x86, 0x89}) + "ccollections\nOrderedDict\n)RtR" +
         bytes_of({'X', 2, 0, 0, 0, 'l', 'r', 'G', 0x3f, 0xe0, 0, 0, 0, 0, 0, 0, 'u', '.'});
}
std::string small_zip(const std::vector<std::pair<std::string, std::string>>& records) {
  std::string out, directory;
  for (const auto& [name, text] : records) {  // CRC-32s of 0: written without
    const auto size = std::uint32_t(text.size());
    const std::string common = std::string(6, '\0') + raw(std::uint32_t(0)) + raw(size) + raw(size) +
                               raw(std::uint16_t(name.size())) + raw(std::uint16_t(0));
    directory +=
        "PK\1\2" + std::string(6, '\0') + common + std::string(10, '\0') + raw(std::uint32_t(out.size())) + name;
    out += "PK\3\4" + std::string(4, '\0') + common + name + text;
  }
  const auto count = std::uint16_t(records.size());
  return out + directory + "PK\5\6" + std::string(4, '\0') + raw(count) + raw(count) +
         raw(std::uint32_t(directory.size())) + raw(std::uint32_t(out.size())) + std::string(2, '\0');
}

void add_torch() {
  const std::string floats = raw(1.0f) + raw(2.0f) + raw(3.0f) + raw(4.0f);
  seed("pickle", "tensor", small_pickle());
  seed("pickle", "text", "(dp0\nS'a'\np1\n(lp2\nI5\naF1.5\naI01\naL7L\nag1\nas.");
  seed("pickle", "four",
       bytes_of({0x80, 4,    0x95, 30,  0, 0,   0, 0,    0,    0, 0,   '}', 0x94, '(', 0x8c, 1,   'k', 0x94,
                 0x8f, 0x94, '(',  'K', 1, 'K', 2, 0x90, 0x8c, 1, 'b', 'C', 2,    'x', 'y',  'u', '.'}));
  seed("pickle", "named",
       "c__builtin__\ngetattr\n(ctorch.distributed._shard.sharded_tensor.api\nShardedTensor\n"
       "S'ProcessGroupState'\ntR)" +
           bytes_of({0x81, '}', 'b', '.'}));
  seed("pickle", "foreign", "}S'a'\ncargparse\nNamespace\n)" + bytes_of({0x81, '}'}) + "S'lr'\nI5\nsbs.");
  std::string conjugate = small_pickle();
  conjugate.insert(conjugate.rfind("tR"), "}S'conj'\nI01\nsS'neg'\nI01\ns");
  seed("pickle", "bits", conjugate);
  seed("torch_file", "zip",
       small_zip({{"a/data.pkl", small_pickle()}, {"a/byteorder", "little"}, {"a/data/0", floats}}));
  const std::string magic =
      bytes_of({0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'});
  seed("torch_file", "old",
       magic + bytes_of({0x80, 2, 'M', 0xe9, 3, '.'}) + "}S'little_endian'\nI01\ns." + small_pickle() + "]S'0'\na." +
           raw(std::uint64_t(4)) + floats);
}

void add_clicks() {
  std::string line = "1\t-2\t\t2147483647";
  for (int column = 4; column < 14; ++column) line += "\t" + std::to_string(column);
  std::string ids;
  for (int column = 0; column < 25; ++column) ids += column % 3 == 0 ? "\t68fd1e64" : column % 3 == 1 ? "\t" : "\tAB";
  seed("criteo_text", "lines", line + ids + "\t00000001\n" + line + ids + "\t\r\n" + line + ids + "\tffffffff");
  seed("criteo_text", "columns", line + "\n0\n\n" + line + ids + "\t123456789\n");

  // packed_clicks: two bytes say how much longer the file is
  const auto padded = [](const PackedHeader& header, std::uint16_t more) {
    const auto bytes = encode(header);
    std::string text(bytes.begin(), bytes.end());
    while (text.ends_with('\0')) text.pop_back();
    more = std::uint16_t(4096 - text.size() + more);
    return bytes_of({more & 255, more >> 8}) + text;
  };
  seed("packed_clicks", "two_days",
       padded({.samples = 5, .dense_features = 2, .block_samples = 3, .day_begins = {0, 3, 5}, .rows = {7, 1}}, 100));
  seed("packed_clicks", "no_tables",
       padded({.samples = 2, .dense_features = 0, .block_samples = 3, .day_begins = {0, 2}, .rows = {}}, 8));
  seed("packed_clicks", "huge",
       padded(
           {.samples = 1ull << 40, .dense_features = 9, .block_samples = 3, .day_begins = {0, 1ull << 40}, .rows = {9}},
           0));

  const auto pipeline = [](int chunks, std::vector<std::vector<TimedAction>> ranks) {
    return to_json(MeasuredPipeline{"a step", {chunks, std::move(ranks)}});
  };
  using enum ActionKind;
  seed("measured", "plain",
       pipeline(1, {{{{kForward, 0, 0}, 0, 1}, {{kBackward, 0, 0}, 2.5, 4}}, {{{kForward, 0, 0}, 1, 2.5}}}));
  seed(
      "measured", "halves",
      pipeline(
          2,
          {{{{kForward, 3, 1}, 0.125, 0.25}, {{kBackwardInput, 3, 1}, 0.25, 0.5}, {{kBackwardWeight, 3, 1}, 0.5, 1}}}));
  seed("measured", "many_chunks", pipeline(30, {{{{kForward, 12, 27}, 1e-9, 3e5}}, {}}));
  seed("measured", "far_apart", pipeline(1, {{{{kForward, 0, 0}, -1e308, 0}, {{kForward, 1, 0}, 0, 1e308}}}));
  seed("measured", "tiny", pipeline(1, {{{{kForward, 0, 0}, 0, 5e-324}, {{kForward, 1, 0}, 1, 2}}}));

  for (const char* preset : {"h100-sxm", "cpu"})
    seed("cluster", preset, cluster_text(cluster_preset(preset, 2).or_throw()));
  seed("cluster", "products",
       "nodes = [{ memory_gib = 4 }]\n[device]\nstream_gb_s = 8\nproducts = [\n"
       "{ kind = \"forward\", m = 8, n = 9, k = 7, busy = 2, us = 1e-3 }]\n");
  seed("cluster", "misspelt", "nodes = [{ memory_gb = 4 }]\n");

  seed("trace_profile", "profile", "3, 7, 1\n0, 1, 3\n0.5, 0.75, 1.0\n");
  seed("trace_profile", "trace", "3, 7, 3, 1,1 7\n9");
}

}  // namespace
}  // namespace tutti::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  tutti::fuzz::folder = argv[1];
  tutti::fuzz::add_streams();
  tutti::fuzz::add_notes();
  tutti::fuzz::add_what_others_tell();
  tutti::fuzz::add_files();
  tutti::fuzz::add_clicks();
  tutti::fuzz::add_torch();
  for (const auto& target : tutti::fuzz::kTargets)
    for (const auto& entry : std::filesystem::directory_iterator(tutti::fuzz::folder + "/" + target.name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      target.run({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    }
  return 0;
}
