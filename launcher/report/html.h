// core. Renders a job as one HTML page without scripts or network access. All data from workers and
// nodes is shown as text.
//
// The page has at most kMostHtmlBytes: with very many ranks, those without a failure lose first
// their bars, then their rows, and the page reports it. Never throws.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launcher/report/timeline.h"

namespace drun {

inline constexpr std::size_t kMostHtmlBytes = 1'900'000;

std::string report_html(const timeline::Job& job);

// Escapes text for use between tags and in attributes. Makes control characters visible, including
// those that change the text direction.
std::string html_text(std::string_view text);

// "Job failed: rank 3 on node 1 (gpu1) exited with code 1"; also used by the text report.
std::string headline_of(const timeline::Job& job);

// "rank 5 on node 1 (gpu1) printed its first line after 12 s; the median is 3 s"
std::string words_of(const timeline::Slow& slow);

// A short description of a phase.
const char* meaning_of(agent::Phase phase);

}  // namespace drun
