#include "launcher/facts/visible_gpus.h"

#include <algorithm>
#include <utility>

#include "launcher/base/text.h"
#include "rendezvous/base/text.h"

namespace drun {
namespace {

enum class EntryKind { Number, Gpu, Mig };

// The device that an entry names. If UUIDs are unknown, the identity is the entry itself.
struct Named {
  EntryKind kind = EntryKind::Number;
  std::string identity{};
};

std::optional<std::size_t> entry_number(std::string_view text) {
  return whole_number<std::size_t>(text);
}

// The only UUID of the devices with this prefix; nullopt if there are none or several.
template <typename Device>
std::optional<std::string> only_uuid(std::string_view begin, const std::vector<Device>& devices) {
  std::optional<std::string> found;
  for (const Device& device : devices) {
    if (!device.uuid.starts_with(begin)) continue;
    if (found) return std::nullopt;
    found = device.uuid;
  }
  return found;
}

// "MIG-GPU-<uuid>/1/0": the name of an instance in drivers before 470.
std::string old_name(const MigInstance& mig, const GpuTable& table) {
  if (!mig.gpu_instance || !mig.compute_instance) return "";
  return "MIG-" + table.gpus[mig.gpu].uuid + "/" + std::to_string(*mig.gpu_instance) + "/" +
         std::to_string(*mig.compute_instance);
}

std::optional<Named> mig_named(std::string_view entry, const GpuTable& table) {
  if (table.instances.empty()) return Named{.kind = EntryKind::Mig, .identity = std::string(entry)};
  for (const MigInstance& mig : table.instances) {
    if (old_name(mig, table) == entry) return Named{.kind = EntryKind::Mig, .identity = mig.uuid};
  }
  const auto found = only_uuid(entry, table.instances);
  return found ? std::optional(Named{.kind = EntryKind::Mig, .identity = *found}) : std::nullopt;
}

std::optional<Named> named(std::string_view entry, const GpuTable& table) {
  if (entry.starts_with("MIG-")) return mig_named(entry, table);
  if (entry.starts_with("GPU-")) {
    const bool is_any_unknown = std::any_of(table.gpus.begin(), table.gpus.end(),
                                            [](const Gpu& gpu) { return gpu.uuid.empty(); });
    if (is_any_unknown) return Named{.kind = EntryKind::Gpu, .identity = std::string(entry)};
    const auto found = only_uuid(entry, table.gpus);
    return found ? std::optional(Named{.kind = EntryKind::Gpu, .identity = *found}) : std::nullopt;
  }
  const auto index = entry_number(entry);
  if (!index || *index >= table.gpus.size()) return std::nullopt;
  return Named{.kind = EntryKind::Number, .identity = std::to_string(*index)};
}

// As in visible_gpu_names(); `find_device` returns the device of an entry, or nothing.
template <typename Find>
std::vector<std::string> named_devices(std::string_view list, Find find_device) {
  std::vector<std::string> names;
  std::vector<std::string> identities;
  std::optional<EntryKind> kind;
  for (const std::string_view entry : trimmed_parts(list, ',')) {
    const std::optional<Named> device = find_device(entry);
    if (!device || kind.value_or(device->kind) != device->kind) break;
    kind = device->kind;
    if (std::find(identities.begin(), identities.end(), device->identity) != identities.end())
      return {};
    identities.push_back(device->identity);
    names.emplace_back(entry);
  }
  return names;
}

std::vector<std::string> all_names(const GpuTable& table) {
  std::vector<std::string> names;
  const bool has_instances = !table.instances.empty();
  for (std::size_t gpu = 0; gpu < table.gpus.size(); ++gpu) {
    const Gpu& self = table.gpus[gpu];
    for (const MigInstance& mig : table.instances) {
      if (mig.gpu == gpu) names.push_back(mig.uuid);
    }
    const auto& divided = table.divided;
    if (std::find(divided.begin(), divided.end(), gpu) != divided.end()) continue;
    names.push_back(has_instances && !self.uuid.empty() ? self.uuid : std::to_string(gpu));
  }
  return names;
}

// Translates one word of NVIDIA_VISIBLE_DEVICES for CUDA_VISIBLE_DEVICES.
std::optional<std::string> cuda_name(std::string_view entry, const GpuTable& table) {
  const std::size_t colon = entry.find(':');
  if (colon == entry.npos) {
    const auto found = named(entry, table);
    if (!found) return std::nullopt;
    const auto index = entry_number(entry);
    if (!index || table.gpus[*index].uuid.empty()) return found->identity;
    return table.gpus[*index].uuid;
  }
  const auto gpu = entry_number(entry.substr(0, colon));
  auto place = entry_number(entry.substr(colon + 1));
  if (!gpu || !place) return std::nullopt;
  for (const MigInstance& mig : table.instances) {
    if (mig.gpu == *gpu && (*place)-- == 0) return mig.uuid;
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> visible_gpu_names(const std::optional<std::string>& list,
                                           const GpuTable& table) {
  if (!list) return all_names(table);
  return named_devices(*list, [&table](std::string_view entry) { return named(entry, table); });
}

std::vector<std::string> trusted_gpu_names(std::string_view list) {
  return named_devices(list, [](std::string_view entry) -> std::optional<Named> {
    const bool is_gpu = entry.starts_with("GPU-");
    if (is_gpu || entry.starts_with("MIG-"))
      return Named{is_gpu ? EntryKind::Gpu : EntryKind::Mig, std::string(entry)};
    if (!entry_number(entry)) return std::nullopt;
    return Named{EntryKind::Number, std::string(entry)};
  });
}

GpuTable unnamed_gpus(std::size_t count) { return {.gpus = std::vector<Gpu>(count)}; }

std::optional<std::string> container_list(const std::optional<std::string>& asked,
                                          const GpuTable& table) {
  const std::string_view text = trimmed(asked ? std::string_view(*asked) : std::string_view());
  if (text.empty() || text == "all" || text == "void" || text.starts_with('/')) return std::nullopt;
  if (text == "none") return "";
  const std::vector<std::string_view> entries = trimmed_parts(text, ',');
  if (entries.size() >= all_names(table).size()) return std::nullopt;
  std::vector<std::string> names;
  for (const std::string_view entry : entries) {
    const auto name = cuda_name(entry, table);
    if (!name) return std::nullopt;  // numbered as on the host, outside this container
    names.push_back(*name);
  }
  return joined(names, ",");
}

GpuView view_of(const GpuTable& table, const std::optional<std::string>& cuda,
                const std::optional<std::string>& container) {
  const auto size = [](const std::vector<std::string>& names) {
    return static_cast<int>(names.size());
  };
  if (cuda) return {.count = size(visible_gpu_names(cuda, table)), .list = std::nullopt};
  const std::optional<std::string> asked = container_list(container, table);
  const std::vector<std::string> names = visible_gpu_names(asked, table);
  GpuView view{.count = size(names), .list = asked};
  if (asked || table.instances.empty()) return view;
  // A list cannot mix numbers and MIG names: only entries of the first kind count.
  const std::vector<std::string> same_kind = visible_gpu_names(joined(names, ","), table);
  view.count = size(same_kind);
  view.list = joined(same_kind, ",");
  return view;
}

std::vector<Gpu> gpus_named(const std::vector<std::string>& names, const std::vector<Gpu>& gpus) {
  const bool is_one_node =
      !gpus.empty() && std::all_of(gpus.begin(), gpus.end(), [&](const Gpu& g) {
        return g.memory_node == gpus.front().memory_node;
      });
  const Gpu unknown{.memory_node = is_one_node ? gpus.front().memory_node : std::nullopt};
  std::vector<Gpu> named;
  for (const std::string& name : names) {
    const bool is_number =
        !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == name.npos;
    const std::string uuid =
        name.starts_with("MIG-GPU-") ? name.substr(4, name.find('/') - 4) : name;
    // `gpus` may also contain MIG instances, with their UUIDs, after the GPUs.
    const bool is_uuid = uuid.starts_with("GPU-") || uuid.starts_with("MIG-");
    const Gpu* found = nullptr;
    for (std::size_t i = 0; i < gpus.size() && found == nullptr; ++i) {
      const bool is_it =
          is_number ? i == std::stoul(name) : is_uuid && gpus[i].uuid.starts_with(uuid);
      if (is_it) found = &gpus[i];
    }
    named.push_back(found == nullptr ? unknown : *found);
  }
  return named;
}

}  // namespace drun
