#include "agent/hang/pulse_text.h"

#include <cstring>

#include "rendezvous/pulse_page.h"

namespace drun::agent {
namespace {

std::string text_of(const PulseEntry& entry) {
  std::string text(entry.kind < kPulseKinds.size() ? kPulseKinds[entry.kind] : "an operation");
  if (entry.sequence > 0) text += " #" + std::to_string(entry.sequence);
  if (entry.group != 0) text += " of a smaller group";
  if (entry.bytes > 0) text += " (" + std::to_string(entry.bytes) + " bytes)";
  return text;
}

}  // namespace

Pulse read_pulse(std::string_view bytes) {
  PulsePage page;
  if (bytes.size() < sizeof(page)) return {};
  std::memcpy(&page, bytes.data(), sizeof(page));
  if (page.magic != kPulseMagic) return {};
  Pulse pulse{.beats = page.beats, .arrived = page.world_arrived};
  const PulseEntry* oldest_open = nullptr;
  const PulseEntry* latest = nullptr;
  for (const PulseEntry& entry : page.entries) {
    if (entry.number == 0 || entry.number > page.begun) continue;
    if (latest == nullptr || entry.number > latest->number) latest = &entry;
    if (entry.has_ended != 0) continue;
    if (oldest_open == nullptr || entry.number < oldest_open->number) oldest_open = &entry;
  }
  pulse.is_inside = oldest_open != nullptr;
  if (oldest_open != nullptr)
    pulse.doing = "in " + text_of(*oldest_open);
  else if (latest != nullptr)
    pulse.doing = "last ended " + text_of(*latest) + ", not in one";
  return pulse;
}

}  // namespace drun::agent
