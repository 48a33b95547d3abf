#include "launcher/facts/host_text.h"

#include "tests/support/catch.h"

namespace drun {

TEST_CASE("the cgroup folders of a process include all parents") {
  using Folders = std::vector<std::string>;
  CHECK(cgroup_folders("0::/a/b\n").v2 == Folders{"/a/b", "/a", ""});
  CHECK(cgroup_folders("0::/\n").v2 == Folders{""});
  const CgroupFolders old =
      cgroup_folders("12:pids:/x\n5:cpu,cpuacct:/docker/7\n1:name=systemd:/\n");
  CHECK(old.v1 == Folders{"/docker/7", "/docker", ""});
  CHECK(old.v1_mounts == Folders{"cpu,cpuacct", "cpu"});
  CHECK(cgroup_folders("1:cpu:/\n").v1_mounts == Folders{"cpu"});
  CHECK(old.v2.empty());
  CHECK(cgroup_folders("").v2.empty());
  CHECK(cgroup_folders("nonsense\n1:\n").v1.empty());
}

TEST_CASE("a CPU quota is converted to cores, or to no limit") {
  CHECK(quota_cores("150000 100000\n") == 1.5);
  const auto none = GENERATE("max 100000\n", "", "-1 100000", "5", "a b", "0 0", "1 2 3");
  CAPTURE(none);
  CHECK_FALSE(quota_cores(none));
  CHECK(cores_within(8, std::nullopt) == 8);
  CHECK(cores_within(8, 2.9) == 2);
  CHECK(cores_within(8, 0.5) == 1);
  CHECK(cores_within(2, 16.0) == 2);
  CHECK(cores_within(0, std::nullopt) == 1);
}

TEST_CASE("the kernel's GPU files are parsed") {
  CHECK(nvidia_device_number("nvidia12") == 12);
  for (const char* file :
       {"nvidia", "nvidiactl", "nvidia-uvm", "nvidia1x", "nvidia1234567", "sda1"})
    CHECK_FALSE(nvidia_device_number(file));
  const char text[] =
      "Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-1-2\nGPU UUID 2: x\nDevice Minor: \t 3\nEmpty:\n";
  CHECK(labeled_value(text, "GPU UUID") == "GPU-1-2");
  CHECK(labeled_value(text, "Device Minor") == "3");
  CHECK(labeled_value(text, "Empty").empty());
  CHECK(labeled_value("location_id 256\ndomain 0\n", "location_id") == "256");
  CHECK(first_number("-1\n") == -1);
  CHECK(first_number("  7 x") == 7);
  CHECK_FALSE(first_number(""));
  CHECK_FALSE(first_number("x"));
}

}  // namespace drun
