#include "agent/output/line_form.h"

#include <utility>

#include "agent/output/label.h"
#include "agent/wall_time.h"

namespace drun::agent {

std::string label_of(const OutputSpec& spec, const LineOrigin& origin) {
  return fill_label(spec.label_template, {.role_name = origin.role,
                                          .local_rank = origin.local_rank,
                                          .rank = origin.rank,
                                          .node_rank = origin.node_rank,
                                          .host = origin.host});
}

LineForm form_of(const OutputSpec& spec, LineOrigin origin, bool is_labelled) {
  LineForm form{.is_json = spec.mode == OutputMode::Json,
                .has_time = spec.has_timestamps,
                .label = is_labelled ? label_of(spec, origin) : "",
                .origin = {}};
  form.origin = std::move(origin);
  return form;
}

FormedLines::FormedLines(std::uint64_t stream, LineForm form, std::size_t longest_held_bytes)
    : form_(std::move(form)), lines_(stream, form_.is_json ? "" : form_.label, longest_held_bytes) {
  if (form_.is_json) json_.emplace(form_.origin);
}

void FormedLines::stamp(WallTime read_at) {
  if (form_.has_time && !form_.is_json) lines_.set_label(utc_time(read_at) + " " + form_.label);
}

void FormedLines::take(std::string_view bytes, WallTime read_at, LineQueue& queue) {
  stamp(read_at);
  if (!json_) return lines_.take(bytes, queue);
  objects_.clear();
  json_->take(bytes, read_at, objects_);
  if (!objects_.empty()) lines_.take(objects_, queue);
}

void FormedLines::end_of_stream(WallTime read_at, LineQueue& queue) {
  stamp(read_at);
  if (json_) {
    objects_.clear();
    json_->end_of_stream(read_at, objects_);
    if (!objects_.empty()) lines_.take(objects_, queue);
  }
  lines_.end_of_stream(queue);
}

}  // namespace drun::agent
