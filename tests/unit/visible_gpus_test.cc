#include "launcher/facts/visible_gpus.h"

#include "tests/support/catch.h"

namespace drun {
namespace {

using Names = std::vector<std::string>;

const GpuTable kWhole{.gpus = {{.uuid = "GPU-aa11"}, {.uuid = "GPU-aa22"}, {.uuid = "GPU-bb33"}}};
// The second GPU has two instances, the third has no usable one.
const GpuTable kDivided{.gpus = {{.uuid = "GPU-aa11"}, {.uuid = "GPU-aa22"}, {.uuid = "GPU-bb33"}},
                        .divided = {1, 2},
                        .instances = {{"MIG-1111", 1, 1, 0}, {"MIG-1222", 1, 2, 0}}};

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

}  // namespace

TEST_CASE("a list of visible devices is parsed as CUDA parses it") {
  const auto [list, names] = GENERATE(table<std::string, std::string>({
      {"0,2", "0 2"},
      {" 2 , 0 ", "2 0"},
      {"0,3,1", "0"},  // there is no device 3
      {"-1", ""},
      {"", ""},
      {"0,0", ""},  // a duplicate makes the list empty
      {"GPU-aa11", "GPU-aa11"},
      {"GPU-b,GPU-aa2", "GPU-b GPU-aa2"},
      {"GPU-aa", ""},          // ambiguous
      {"GPU-bb33,GPU-b", ""},  // the same device twice
      {"GPU-zz,GPU-aa11", ""},
      {"GPU-aa11,0", "GPU-aa11"},  // mixed index and UUID
  }));
  INFO(list);
  CHECK(joined(visible_gpu_names(list, kWhole)) == names);
}

TEST_CASE("MIG instances are named by their UUIDs in the new and the old format") {
  const auto [list, names] = GENERATE(table<std::string, std::string>({
      {"MIG-1111", "MIG-1111"},
      {"MIG-11,MIG-12", "MIG-11 MIG-12"},
      {"MIG-1", ""},
      {"MIG-3", ""},
      {"MIG-GPU-aa22/2/0", "MIG-GPU-aa22/2/0"},
      {"MIG-GPU-aa22/2/0,MIG-1222", ""},
      {"MIG-GPU-aa22/3/0", ""},
      {"MIG-1111,GPU-aa11", "MIG-1111"},
      {"0,1", "0 1"},
  }));
  INFO(list);
  CHECK(joined(visible_gpu_names(list, kDivided)) == names);
  // If instances are unknown, any name is accepted.
  CHECK(joined(visible_gpu_names("MIG-x,MIG-y", kWhole)) == "MIG-x MIG-y");
}

TEST_CASE("if UUIDs are unknown, any UUID is accepted and numbers are checked") {
  const GpuTable unknown{.gpus = {Gpu{}, Gpu{}}};
  CHECK(joined(visible_gpu_names("GPU-1,GPU-2", unknown)) == "GPU-1 GPU-2");
  CHECK(joined(visible_gpu_names("1,0,2", unknown)) == "1 0");
  CHECK(joined(visible_gpu_names(std::nullopt, unknown)) == "0 1");
  CHECK(visible_gpu_names(std::nullopt, GpuTable{}).empty());
}

TEST_CASE("entries of CUDA_VISIBLE_DEVICES count up to the first that names no device") {
  CHECK(visible_gpu_names(std::nullopt, unnamed_gpus(8)).size() == 8);
  const auto [list, count] = GENERATE(table<std::string, std::size_t>({
      {"", 0},
      {"0", 1},
      {"0,1,7", 3},
      {" 2 , 3 ", 2},
      {"0,8,1", 1},
      {"0,-1,1", 1},
      {"-1", 0},
      {"NoDevFiles", 0},
      {"GPU-8932f937,GPU-1", 2},
      {"MIG-1,0", 1},
      {"0,GPU-1", 1},
      {"GPU-1,MIG-2", 1},
      {"MIG-GPU-1/0/0,MIG-GPU-1/1/0", 2},
      {"0,x", 1},
      {"0,1,0", 0},
      {"GPU-1,GPU-1", 0},
  }));
  CAPTURE(list);
  CHECK(visible_gpu_names(list, unnamed_gpus(8)).size() == count);
}

TEST_CASE("visible GPUs have the names in CUDA_VISIBLE_DEVICES, or numbers") {
  CHECK(visible_gpu_names(std::nullopt, unnamed_gpus(3)) == Names{"0", "1", "2"});
  CHECK(visible_gpu_names(" 2 ,0", unnamed_gpus(3)) == Names{"2", "0"});
  CHECK(trusted_gpu_names("9,10,-1") == Names{"9", "10"});
  CHECK(visible_gpu_names("9", unnamed_gpus(3)).empty());
  CHECK(trusted_gpu_names("GPU-1,GPU-2,MIG-3") == Names{"GPU-1", "GPU-2"});
  CHECK(trusted_gpu_names("7,7").empty());
}

TEST_CASE("a MIG instance counts as one GPU, and workers get its name") {
  GpuTable divided = kDivided;
  divided.divided = {0, 1, 2};
  CHECK(view_of(divided, std::nullopt, std::nullopt) ==
        GpuView{.count = 2, .list = "MIG-1111,MIG-1222"});
  CHECK(view_of(divided, "MIG-1222", std::nullopt) == GpuView{.count = 1});
  CHECK(view_of(kWhole, std::nullopt, std::nullopt) == GpuView{.count = 3});
  CHECK(view_of(GpuTable{}, std::nullopt, "all") == GpuView{});
  // Whole GPUs and instances cannot share one list.
  CHECK(view_of(kDivided, std::nullopt, std::nullopt) == GpuView{.count = 1, .list = "GPU-aa11"});
}

TEST_CASE("the devices that a container requested limit the visible devices") {
  const auto [asked, list] = GENERATE(table<std::string, std::optional<std::string>>({
      {"", std::nullopt},
      {"all", std::nullopt},
      {"void", std::nullopt},  // the devices were passed in another way
      {"/var/run/nvidia-container-devices", std::nullopt},
      {"none", ""},
      {"1", "GPU-aa22"},
      {"2,0", "GPU-bb33,GPU-aa11"},
      {"GPU-bb33", "GPU-bb33"},
      {"0,1,2", std::nullopt},  // all existing devices
      {"4,5,6", std::nullopt},
      {"5", std::nullopt},  // a device number of the host
      {"nonsense", std::nullopt},
  }));
  INFO(asked);
  CHECK(container_list(asked, kWhole) == list);
  CHECK(view_of(kWhole, std::nullopt, asked).count ==
        static_cast<int>(visible_gpu_names(list, kWhole).size()));
  CHECK(view_of(kWhole, "0", asked).count == 1);  // CUDA's own variable takes precedence
}

TEST_CASE("a container requests MIG instances by position or by name") {
  GpuTable divided = kDivided;
  divided.divided = {0, 1, 2};
  CHECK(container_list("1:1", divided) == "MIG-1222");
  CHECK(container_list("MIG-1111", divided) == "MIG-1111");
  CHECK(container_list("1:2", divided) == std::nullopt);
  CHECK(container_list("1:x", divided) == std::nullopt);
}

}  // namespace drun
