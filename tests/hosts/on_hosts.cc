#include "tests/hosts/on_hosts.h"

#include "tutti/base/text.h"

namespace tutti::testing {

void OnHosts::SetUp() {
  auto made = Hosts::make(count_);
  if (!made.ok()) GTEST_SKIP() << made.error().detail;
  hosts_ = std::move(*made);
}

void OnHosts::TearDown() {
  if (!hosts_) return;
  const Deadline patience = Deadline::after(std::chrono::seconds(20));
  while (!hosts_->census().empty() && !patience.expired()) ::usleep(1000);
  EXPECT_EQ(hosts_->census(), "") << "left on the hosts";
}

Running OnHosts::start(int host, Arguments arguments, std::map<std::string, std::string> changes,
                       const Arguments& around) {
  changes.emplace("TUTTI_SECRET", "a word of more than twenty characters that all nodes know");
  changes.emplace("XDG_RUNTIME_DIR", hosts_->folder(host));
  changes.emplace("TMPDIR", hosts_->folder(host));
  Arguments entering = hosts_->entering(host);
  entering.insert(entering.end(), around.begin(), around.end());
  return Running(std::move(arguments), std::move(changes), {}, entering);
}

Arguments OnHosts::node(int number, int nodes, const std::string& ranks, const Arguments& rest) {
  return node_at(Hosts::address(0), number, nodes, ranks, rest);
}

Arguments OnHosts::node_at(const std::string& master, int number, int nodes, const std::string& ranks,
                           const Arguments& rest) {
  Arguments arguments = {
      "run", "--nnodes", std::to_string(nodes), "--node-rank", std::to_string(number), "--master-addr", master,
      "-n",  ranks,      "--connect-timeout",   "50s"};
  arguments.insert(arguments.end(), rest.begin(), rest.end());
  return arguments;
}

std::string line_with(const std::string& text, const std::string& part) {
  for (const std::string& line : split(text, '\n')) {
    if (line.find(part) != std::string::npos) return line;
  }
  return {};
}

std::string world() { return TUTTI_TEST_WORLD; }
std::string faulty() { return TUTTI_TEST_FAULTY; }

}  // namespace tutti::testing
