"""The runs of a folder: what is known of each from its files, for `saccade runs`, the web page and `saccade.list_runs`."""

from saccade.training.runs.info import RunInfo, read_run_info
from saccade.training.runs.run_list import RunList, find_runs, list_runs

__all__ = ["RunInfo", "RunList", "find_runs", "list_runs", "read_run_info"]
