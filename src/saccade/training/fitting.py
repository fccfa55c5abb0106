"""A schedule that is fitted to train.max_time: as many steps as the time holds at the pace that was measured.

The first tenth of the time tells how many. From then on the schedule stands, in every checkpoint and whatever time a later call
has, with two exceptions. Where steps and evaluations take so long that the clock would end it before its learning rate is down,
it is shortened, and given back at most what was planned. Where they became faster, it is lengthened, at a quarter and at half
of the time or of its steps; each such plan is written into a checkpoint before its first step, so that a run goes on with it.
"""

from dataclasses import dataclass

from saccade.training.events import Progress

TELLING = 0.1  # the part of the time that tells how fast steps are; and of what is left of it, when a call goes on
MARKS = (
    TELLING,
    0.25,
    0.5,
)  # the parts of the time after which the pace is measured anew; after the first, a plan may grow
FILLED = 0.95  # the part of the time that it fills; the rest is for steps and looks that take longer
LATEST = 0.98  # the part of the time by which it ends though they take longer still
WORTH = 1.05  # a plan is lengthened if it grows by more than this


@dataclass
class Fitting:
    """The pace of one call. Its first step, which is slow, tells nothing."""

    since: tuple[int, float] | None = None  # steps and minutes from which on steps are timed

    def plan(self, progress: Progress, done: int, minutes: float, *, max_time: float, longest: int) -> bool:
        """Set `progress.horizon` after `done` steps; whether a settled schedule became longer, which has to be saved."""
        if self.since is None:
            self.since = done, minutes
        since, before = self.since
        if done == since:
            return False
        pace = (done - since) / max(minutes - before, 1e-9)
        held = lambda time: done + max(1, round(pace * (time - minutes)))
        if not progress.horizon or minutes < TELLING * (progress.fitted or max_time):
            progress.planned = progress.horizon = min(longest, held(FILLED * max_time))
            progress.fitted = max_time
            return False
        if progress.marks == 0:  # the schedule is settled; what was measured for that is old
            progress.marks, self.since = 1, (done, minutes)
            return False
        marks = sum(max(minutes / progress.fitted, done / progress.horizon) >= part for part in MARKS)
        whole = max(max_time, progress.fitted)
        known = minutes - before >= TELLING * (whole - before)
        if known:
            least, most = held(FILLED * whole), held(LATEST * whole)
            progress.horizon = min(progress.planned, max(least, min(most, progress.horizon)))
        if marks == progress.marks or not (known or done - since >= TELLING * (progress.horizon - since)):
            return False
        progress.marks, self.since = marks, (done, minutes)
        return _lengthen(progress, min(longest, held(FILLED * progress.fitted)))


def _lengthen(progress: Progress, steps: int) -> bool:
    if steps <= WORTH * progress.horizon:
        return False
    progress.planned = progress.horizon = steps
    return True
