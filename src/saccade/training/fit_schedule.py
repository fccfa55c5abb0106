"""Fits the learning-rate schedule to train.max_minutes: as many steps as fit in the time at the measured speed.

The speed is measured during the first tenth of the time. The schedule is then fixed, saved in every checkpoint and used whatever
the time limit of a later call is, with two exceptions. If steps and evaluations are so slow that time would run out before the
learning rate has decayed, the schedule is shortened, and later restored up to the planned length. If they became faster, it is
lengthened, at a quarter and at half of the time or of the steps; each longer plan is saved in a checkpoint before its first
step, so that a resumed run continues with it.
"""

from dataclasses import dataclass

from saccade.training.events import RunProgress

# fraction of the time in which the speed is measured; of the remaining time if a run resumes
PACE_FRACTION = 0.1
# fractions of the time at which the speed is measured again; after the first one a plan may grow
REPLAN_FRACTIONS = (PACE_FRACTION, 0.25, 0.5)
TARGET_FRACTION = 0.95  # fraction of the time to fill; the rest is a margin for slower steps and evaluations
LATEST_FRACTION = 0.98  # fraction of the time by which a schedule ends even if they become slower
MIN_GROWTH_RATIO = 1.05  # a plan is lengthened only if it grows by more than this factor


@dataclass
class ScheduleFitter:
    """Measures the speed of one call and plans the schedule. The first step is not timed, because it is slow."""

    timing_start: tuple[int, float] | None = None  # steps and minutes at which timing began

    def plan(
        self, progress: RunProgress, step_count: int, minutes: float, *, max_minutes: float, max_steps: int
    ) -> bool:
        """Set `progress.fitted_steps` after `step_count` steps; True if a fixed schedule grew, so that it must be saved."""
        if self.timing_start is None:
            self.timing_start = step_count, minutes
        start_step, start_minutes = self.timing_start
        if step_count == start_step:
            return False
        pace = (step_count - start_step) / max(minutes - start_minutes, 1e-9)  # steps per minute
        steps_at = lambda time: step_count + max(1, round(pace * (time - minutes)))
        if not progress.fitted_steps or minutes < PACE_FRACTION * (progress.fitted_minutes or max_minutes):
            progress.planned_steps = progress.fitted_steps = min(max_steps, steps_at(TARGET_FRACTION * max_minutes))
            progress.fitted_minutes = max_minutes
            return False
        if progress.replan_count == 0:  # the schedule is fixed from here on; start a new measurement
            progress.replan_count, self.timing_start = 1, (step_count, minutes)
            return False
        plans_due = sum(
            max(minutes / progress.fitted_minutes, step_count / progress.fitted_steps) >= fraction
            for fraction in REPLAN_FRACTIONS
        )
        time_limit = max(max_minutes, progress.fitted_minutes)
        is_pace_known = minutes - start_minutes >= PACE_FRACTION * (time_limit - start_minutes)
        if is_pace_known:
            shortest, longest = steps_at(TARGET_FRACTION * time_limit), steps_at(LATEST_FRACTION * time_limit)
            progress.fitted_steps = min(progress.planned_steps, max(shortest, min(longest, progress.fitted_steps)))
        if plans_due == progress.replan_count or not (
            is_pace_known or step_count - start_step >= PACE_FRACTION * (progress.fitted_steps - start_step)
        ):
            return False
        progress.replan_count, self.timing_start = plans_due, (step_count, minutes)
        return _lengthen_schedule(progress, min(max_steps, steps_at(TARGET_FRACTION * progress.fitted_minutes)))


def _lengthen_schedule(progress: RunProgress, steps: int) -> bool:
    if steps <= MIN_GROWTH_RATIO * progress.fitted_steps:
        return False
    progress.planned_steps = progress.fitted_steps = steps
    return True
