// core. A job as one page for browsers: no script, no network, everything that came from a worker
// or a node shown as text.
//
// Size:    at most kMostHtmlBytes: with very many ranks those without a failure lose their bars,
//          then their rows, and the page says so.
// Thread:  any.   Errors: none. Never throws.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/report/timeline.h"

namespace drun {

inline constexpr std::size_t kMostHtmlBytes = 1'900'000;

std::string report_html(const timeline::Job& job);

// Safe between tags and in attributes. Control characters and those that change the direction of
// text are made visible.
std::string html_text(std::string_view text);

// "Job failed: rank 3 on node 1 (gpu1) exited with code 1", also for the text.
std::string headline_of(const timeline::Job& job);

// "rank 5 on node 1 (gpu1) printed its first line after 12 s; the median is 3 s"
std::string words_of(const timeline::Slow& slow);

// What a phase is, in a few words.
const char* meaning_of(agent::Phase phase);

}  // namespace drun
