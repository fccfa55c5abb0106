"""Data loading: files to examples, splits and padded batches.

Names are imported on first use, because the command line reads the settings of held-out data, which need no torch, to print
its help.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.data.batch import Audio as Audio
    from saccade.data.batch import Batch as Batch
    from saccade.data.batch import Features as Features
    from saccade.data.batch import Image as Image
    from saccade.data.batch import Media as Media
    from saccade.data.batch import Source as Source
    from saccade.data.batch import Text as Text
    from saccade.data.data_report import DataReport as DataReport
    from saccade.data.data_report import inspect_data as inspect_data
    from saccade.data.example import ROLES as ROLES
    from saccade.data.example import Example as Example
    from saccade.data.example import Records as Records
    from saccade.data.example import Role as Role
    from saccade.data.read import parse_columns as parse_columns
    from saccade.data.read import read_examples as read_examples
    from saccade.data.read import stream_examples as stream_examples
    from saccade.data.read import write_rejects as write_rejects
    from saccade.data.splits import Splits as Splits
    from saccade.data.splits import find_split_files as find_split_files
    from saccade.data.splits import open_data as open_data
    from saccade.data.table_writer import write_table as write_table
    from saccade.data.tables import read_table as read_table
    from saccade.data.writers import write_examples as write_examples
    from saccade.errors import DataError as DataError

_MODULE_OF = {
    "Audio": "saccade.data.batch",
    "Batch": "saccade.data.batch",
    "DataError": "saccade.errors",
    "DataReport": "saccade.data.data_report",
    "Example": "saccade.data.example",
    "Features": "saccade.data.batch",
    "Image": "saccade.data.batch",
    "Media": "saccade.data.batch",
    "ROLES": "saccade.data.example",
    "Records": "saccade.data.example",
    "Role": "saccade.data.example",
    "Source": "saccade.data.batch",
    "Splits": "saccade.data.splits",
    "Text": "saccade.data.batch",
    "find_split_files": "saccade.data.splits",
    "inspect_data": "saccade.data.data_report",
    "open_data": "saccade.data.splits",
    "parse_columns": "saccade.data.read",
    "read_examples": "saccade.data.read",
    "read_table": "saccade.data.tables",
    "stream_examples": "saccade.data.read",
    "write_examples": "saccade.data.writers",
    "write_rejects": "saccade.data.read",
    "write_table": "saccade.data.table_writer",
}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'saccade.data' has no attribute {name!r}; it has {', '.join(sorted(_MODULE_OF))}")


def __dir__() -> list[str]:
    return sorted(_MODULE_OF)
