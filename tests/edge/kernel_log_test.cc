#include "agent/process/kernel_reports.h"

#include <fstream>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/process.h"

namespace drun::agent {
namespace {

std::vector<std::string> new_records(KernelLog& log) {
  std::vector<std::string> texts;
  log.read([&texts](std::string_view text) { texts.emplace_back(text); });
  return texts;
}

}  // namespace

TEST_CASE("the kernel's own records since a moment are read, and each once") {
  const testing::TemporaryDirectory directory;
  const std::string path = directory.path() + "/kmsg";
  std::ofstream file(path);
  file << "3,1,10,-;old\n" << std::flush;
  KernelLog log(path);
  log.skip();
  CHECK(new_records(log).empty());
  file << "3,2,20,-;NVRM: Xid (PCI:0000:c1:00): 79, a;b\n SUBSYSTEM=pci\n DEVICE=+pci:0000;x\n"
       << "14,3,30,-;written by a program\n"
       << "nonsense\n;no prefix\n6,4,40,c;end\n"
       << std::flush;
  CHECK(new_records(log) == std::vector<std::string>{"NVRM: Xid (PCI:0000:c1:00): 79, a;b", "end"});
  CHECK(new_records(log).empty());
}

TEST_CASE("a kernel log that cannot be read has no records") {
  KernelLog log("/no/such/file");
  log.skip();
  CHECK(new_records(log).empty());
}

}  // namespace drun::agent
