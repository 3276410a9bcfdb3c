#include "engine/train/inputs/long_rows.h"

#include <ATen/Parallel.h>

#include "engine/data/long_rows.h"

namespace dsj::train {

void tell_long_rows(const Inputs& in, const Events& events) {
  if (in.packs && data::cut_of(in.packs->strategy()) == data::RowCut::Never) return;
  const int64_t first = in.first_row();
  const auto counted =
      data::count_long_rows(*in.dataset, first, in.dataset->rows() - first, at::get_num_threads());
  if (!counted || counted->cut == 0) return;
  const int64_t most = in.dataset->max_seq_length();
  const std::string about = counted->estimated ? "about " : "";
  std::string text = about + std::to_string(counted->cut) + " of " + std::to_string(counted->rows) +
                     " rows have more than " + std::to_string(most) +
                     " tokens and are cut: " + about + std::to_string(counted->tokens) +
                     " tokens are left out";
  if (counted->without_target > 0)
    text += ", and " + about + std::to_string(counted->without_target) +
            " of these rows keep no target";
  events.warn(text + "; maxSeqLength sets the length");
  events.emit(report::CutRows{.rows = counted->rows,
                              .cut = counted->cut,
                              .tokens = counted->tokens,
                              .without_target = counted->without_target,
                              .max_tokens = most});
}

}  // namespace dsj::train
