// How the prompts of a step share its time. Those that can finish go first, shortest first, since a
// short prompt that waits for a long one has lost most by waiting. A part is kept for the oldest of
// the others, whatever else comes, so that it always gets on and everything behind it becomes the
// oldest in turn. Where some finish, nobody takes more than that: the step is over sooner, and with
// it the wait for their first token. Where none does, the rest goes to whoever needs least.
#pragma once

#include <span>
#include <vector>

namespace fathom {

inline constexpr double kOldestShare = 0.25;

// needs[i]: what prompt i, in order of arrival, would take alone; same unit as budget. Shares add
// up to at most budget; no share is more than its need.
std::vector<double> share_budget(double budget, std::span<const double> needs);

}  // namespace fathom
