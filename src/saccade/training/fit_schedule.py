"""A schedule that is fitted to train.max_minutes: as many steps as the time holds at the pace that was measured.

The first tenth of the time tells how many. From then on the schedule stands, in every checkpoint and whatever time a later call
has, with two exceptions. Where steps and evaluations take so long that the clock would end it before its learning rate is down,
it is shortened, and given back at most what was planned. Where they became faster, it is lengthened, at a quarter and at half
of the time or of its steps; each such plan is written into a checkpoint before its first step, so that a run goes on with it.
"""

from dataclasses import dataclass

from saccade.training.events import RunProgress

PACE_FRACTION = (
    0.1  # the part of the time that tells how fast steps are; and of what is left of it, when a call goes on
)
REPLAN_FRACTIONS = (
    PACE_FRACTION,
    0.25,
    0.5,
)  # the parts of the time after which the pace is measured anew; after the first, a plan may grow
TARGET_FRACTION = 0.95  # the part of the time that it fills; the rest is for steps and looks that take longer
LATEST_FRACTION = 0.98  # the part of the time by which it ends though they take longer still
MIN_GROWTH_RATIO = 1.05  # a plan is lengthened if it grows by more than this


@dataclass
class ScheduleFitter:
    """The pace of one call. Its first step, which is slow, tells nothing."""

    timing_start: tuple[int, float] | None = None  # steps and minutes from which on steps are timed

    def plan(
        self, progress: RunProgress, step_count: int, minutes: float, *, max_minutes: float, max_steps: int
    ) -> bool:
        """Set `progress.horizon` after `done` steps; whether a settled schedule became longer, which has to be saved."""
        if self.timing_start is None:
            self.timing_start = step_count, minutes
        since, before = self.timing_start
        if step_count == since:
            return False
        pace = (step_count - since) / max(minutes - before, 1e-9)
        held = lambda time: step_count + max(1, round(pace * (time - minutes)))
        if not progress.fitted_steps or minutes < PACE_FRACTION * (progress.fitted_minutes or max_minutes):
            progress.planned_steps = progress.fitted_steps = min(max_steps, held(TARGET_FRACTION * max_minutes))
            progress.fitted_minutes = max_minutes
            return False
        if progress.replan_count == 0:  # the schedule is settled; what was measured for that is old
            progress.replan_count, self.timing_start = 1, (step_count, minutes)
            return False
        marks = sum(
            max(minutes / progress.fitted_minutes, step_count / progress.fitted_steps) >= part
            for part in REPLAN_FRACTIONS
        )
        whole = max(max_minutes, progress.fitted_minutes)
        known = minutes - before >= PACE_FRACTION * (whole - before)
        if known:
            least, most = held(TARGET_FRACTION * whole), held(LATEST_FRACTION * whole)
            progress.fitted_steps = min(progress.planned_steps, max(least, min(most, progress.fitted_steps)))
        if marks == progress.replan_count or not (
            known or step_count - since >= PACE_FRACTION * (progress.fitted_steps - since)
        ):
            return False
        progress.replan_count, self.timing_start = marks, (step_count, minutes)
        return _lengthen_schedule(progress, min(max_steps, held(TARGET_FRACTION * progress.fitted_minutes)))


def _lengthen_schedule(progress: RunProgress, steps: int) -> bool:
    if steps <= MIN_GROWTH_RATIO * progress.fitted_steps:
        return False
    progress.planned_steps = progress.fitted_steps = steps
    return True
