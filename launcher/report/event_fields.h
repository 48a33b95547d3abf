// core. Reads fields of an event (agent/status/events.h), which may be missing, of another type, or
// as long as the line.
//
// Texts and lists are cut to the given size, and numbers to the valid range. A field that is
// missing or of another type gives an empty text or list, 0, false, or no value. Never throws.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/timeline.h"
#include "rendezvous/job/outcome.h"
#include "rendezvous/job/rank_ranges.h"

namespace drun::timeline {

using EventJson = nlohmann::json;

inline constexpr std::size_t kMostNameBytes = 256;
inline constexpr std::size_t kMostWords = 256;
inline constexpr double kLongest = 1e9;  // seconds

// At most `most_bytes` bytes, and then "..."; does not split a character.
std::string cut(std::string text, std::size_t most_bytes);

std::string text_of(const EventJson& event, const char* name, std::size_t most = kMostNameBytes);
std::optional<double> number_of(const EventJson& event, const char* name);  // finite
int int_of(const EventJson& event, const char* name, int least = 0);
bool flag_of(const EventJson& event, const char* name);
// An empty list if the field is not a list, and an empty object if it is not an object.
const EventJson& list_of(const EventJson& event, const char* name);
const EventJson& object_of(const EventJson& event, const char* name);
std::vector<std::string> words_of(const EventJson& event, const char* name, std::size_t most_words,
                                  std::size_t most_bytes);
RankRanges ranks_of(const EventJson& event);  // "ranks": [[0, 3], [8, 8]]

// Converts "2026-11-21T13:03:07.123456Z" to seconds since 1970.
std::optional<double> seconds_of(const std::string& time);

TimedFailure failure_of(const EventJson& event, double at_s);
std::vector<TimedFailure> failures_of(const EventJson& event, double at_s);
// Of job_ended. Absent: it has none, or one of a class that is not known.
std::optional<agent::Diagnosis> diagnosis_of(const EventJson& event);

}  // namespace drun::timeline
